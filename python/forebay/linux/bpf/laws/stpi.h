/* STPI of Zhang, Hollot, Towsley and Misra: crates/forebay-aqm/src/laws/stpi.rs. */
#include "../difference.h"
#include "../estimate.h"

/* proportional: factor g·2^36/R of (4), for R in nanoseconds; half_interval: T/R, in units of 2^-60. */
#define LAW_CONFIG(FIELD) \
	ESTIMATE_CONFIG(FIELD) FIELD(target) FIELD(proportional) FIELD(half_interval)
/* a and b: gains per byte, in units of 2^-64. */
#define LAW_STATE(FIELD) DIFFERENCE_STATE(FIELD) ESTIMATE_STATE(FIELD) FIELD(a) FIELD(b)
LAW_STRUCTS

static __always_inline __s64 stpi_times(__s64 error, __s64 gain)
{
	__u64 size = fb_size(error), factor = fb_size(gain);
	__s64 product = fb_mul(size, factor, 64 + FB_LENGTH - FB_PRODUCT);

	return (error < 0) != (gain < 0) ? -product : product;
}

/* K_P = g·θ_rc/(R·C) and K_I = 2θ_rc/R·K_P (4), as (5) has them anew at each estimate. */
static __always_inline void stpi_design(const struct law_config *config, struct law_state *state)
{
	struct estimate_state point =
		estimate_point((const struct estimate_config *)config,
			       (const struct estimate_state *)&state->capacity);
	__s64 k_p = fb_times((__u64)point.load / ((__u64)point.capacity >> 24 | 1), config->proportional);
	__s64 half_k_i = fb_mul(k_p, fb_part(point.load, config->half_interval), FB_P);

	state->a = fb_min(k_p + half_k_i, FB_MAX);
	state->b = k_p - half_k_i;
}

#define LAW_TICK
static __always_inline void law_tick(const struct law_config *config, struct law_state *state,
				     const struct fb_queue *queue)
{
	__s64 error = ((__s64)queue->bytes << FB_LENGTH) - config->target;
	__s64 change = stpi_times(error, state->a) - stpi_times(state->error_1, state->b);

	difference_change((struct difference_state *)state, change, error);
	estimate_update((const struct estimate_config *)config,
			(struct estimate_state *)&state->capacity, queue, state->p);
	if ((__s64)queue->now_ns >= config->tune_after_ns)
		stpi_design(config, state);
}
