/* Estimates of capacity and load from the router's own queue (section III.B of the self-tuning paper, whose
 * laws are STPI and STRED), as in crates/forebay-aqm/src/estimator.rs and self_tuning.rs. */
#ifndef FOREBAY_ESTIMATE_H
#define FOREBAY_ESTIMATE_H

/* capacity_per_ns: factor, 1/time constant; load_weight: of one interval, in units of 2^-60; least: the
 * rate of one packet in a round trip. */
#define ESTIMATE_CONFIG(FIELD) FIELD(capacity_per_ns) FIELD(load_weight) FIELD(least) FIELD(tune_after_ns)
/* capacity: θ_c, a rate. load: θ_rc = N/(RC), in units of 2^-60. */
#define ESTIMATE_STATE(FIELD) FIELD(capacity) FIELD(load)

struct estimate_config {
	ESTIMATE_CONFIG(FB_FIELD)
};
struct estimate_state {
	ESTIMATE_STATE(FB_FIELD)
};

#define LAW_DEPARTED

static __always_inline void estimate_update(const struct estimate_config *config,
					    struct estimate_state *state, const struct fb_queue *queue,
					    __s64 p)
{
	__u64 gone;

	/* An interval in which the link hardly sent contains hardly any information. */
	if (queue->busy_ns) {
		gone = fb_min(fb_times(queue->busy_ns, config->capacity_per_ns), FB_ONE);
		state->capacity = fb_toward(state->capacity, fb_rate(queue->departed_bytes, queue->busy_ns),
					    fb_decay(gone));
	}
	/* TCP's throughput relation √(p/2) = N/(RC). */
	state->load = fb_toward(state->load, fb_sqrt(p >> 1) << 30, config->load_weight);
}

/* The estimates, but at least one flow and one packet per round trip. */
static __always_inline struct estimate_state estimate_point(const struct estimate_config *config,
							    const struct estimate_state *state)
{
	struct estimate_state point = *state;
	__u64 one_flow;

	if (point.capacity < config->least)
		point.capacity = config->least;
	one_flow = ((__u64)config->least << 12) / ((__u64)point.capacity >> 20 | 1) << 28;
	if ((__u64)point.load < one_flow)
		point.load = one_flow;
	return point;
}

#endif
