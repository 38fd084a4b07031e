/* STRED of Zhang, Hollot, Towsley and Misra: crates/forebay-aqm/src/laws/stred.rs. */
#include "../estimate.h"
#include "../red.h"

/* Numbers of the design (appendix D of the self-tuning paper): cos_margin, sin_margin and crossover in units of 2^-30; slope: factor
 * 4·(max_th − min_th)·2^32/R; weight: factor packet·2^36/R, for bytes and nanoseconds. */
#define LAW_CONFIG(FIELD)                                                                        \
	RED_CONFIG(FIELD) ESTIMATE_CONFIG(FIELD) FIELD(cos_margin) FIELD(sin_margin) FIELD(crossover) \
	FIELD(slope) FIELD(weight)
#define LAW_STATE(FIELD) RED_STATE(FIELD) ESTIMATE_STATE(FIELD)
LAW_STRUCTS
RED_OVERFLOW
RED_ARRIVAL

/* With φ = margin − ω_g·R and ω_g = crossover·min(2θ_rc, 1)/R: K = ω_g/tan φ, L = 4θ_rc²/(cos φ·R·C),
 * w_q = 1 − e^(−K/C). */
#define LAW_DESIGN
FB_GLOBAL int law_design(const struct law_config *config, struct law_state *state, __u64 now_ns)
{
	if (!config || !state || (__s64)now_ns < config->tune_after_ns)
		return 0;

	struct estimate_state point =
		estimate_point((const struct estimate_config *)&config->capacity_per_ns,
			       (const struct estimate_state *)&state->capacity);
	__u64 load = fb_min(point.load, FB_ONE);
	__u64 turn = fb_part(config->crossover, fb_min(2 * load, FB_ONE));
	__u64 square = turn * turn >> 30;
	__u64 sine = turn - turn * square / 6 / (1 << 30) + (turn * square >> 30) * square / 120 / (1 << 30);
	__u64 cosine = (1 << 30) - square / 2 + square * square / 24 / (1 << 30);
	__u64 cos_phi = (config->cos_margin * cosine + config->sin_margin * sine) >> 30;
	__u64 sin_phi = (config->sin_margin * cosine - config->cos_margin * sine) >> 30;
	__u64 slope = fb_times(fb_part(load, load) / ((__u64)point.capacity >> 24 | 1), config->slope) /
		      (cos_phi | 1);

	state->max_p = slope >> 30 ? FB_ONE : slope << 30;
	state->w_q = fb_decay(fb_min(
		fb_times((turn * cos_phi / (sin_phi | 1) << 30) / ((__u64)point.capacity >> 20 | 1),
			 config->weight),
		FB_ONE));
	return 0;
}

#define LAW_TICK
static __always_inline void law_tick(const struct law_config *config, struct law_state *state,
				     const struct fb_queue *queue)
{
	estimate_update((const struct estimate_config *)&config->capacity_per_ns,
			(struct estimate_state *)&state->capacity, queue,
			red_base((const struct red_config *)config, (const struct red_state *)state));
}
