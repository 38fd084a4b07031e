/* RED as crates/forebay-aqm/src/laws/red.rs has it, for laws that are RED and for those over it. */
#ifndef FOREBAY_RED_H
#define FOREBAY_RED_H

#define RED_COUNT 16 /* bits behind the point of a count of arrivals */

/* min_th, max_th: lengths. share: factor from a length to a share of max_th − min_th, as a
 * probability; gentle_slope: from a length to a probability, zero without gentle. per_ns: packets that
 * the link sends in a nanosecond, as a factor. per_byte: factor of bytes, for a size in 1/65536 of
 * the usual packet; zero where every packet counts one. */
#define RED_CONFIG(FIELD)                                                            \
	FIELD(min_th) FIELD(max_th) FIELD(share) FIELD(gentle) FIELD(gentle_slope)   \
	FIELD(wait) FIELD(per_ns) FIELD(packet_bytes) FIELD(per_byte)
#define RED_STATE(FIELD) \
	FIELD(p) FIELD(max_p) FIELD(w_q) FIELD(average) FIELD(count) FIELD(above_min)

struct red_config {
	RED_CONFIG(FB_FIELD)
};
struct red_state {
	RED_STATE(FB_FIELD)
};

/* p_b (equation 2 of the PI-PD paper, and gentle mode above max_th). */
static __always_inline __s64 red_base(const struct red_config *config, const struct red_state *state)
{
	__s64 average = state->average;

	if (average < config->min_th)
		return 0;
	if (average < config->max_th)
		return fb_part(fb_times(average - config->min_th, config->share), state->max_p);
	if (config->gentle)
		return fb_clamp(FB_ONE + fb_times(average - 2 * config->max_th, config->gentle_slope), 0,
				FB_ONE);
	return FB_ONE;
}

/* p/(whole − expected), with all three below 2 in units of 2^-60; 1 where it is more. */
static __always_inline __s64 red_over(__s64 p, __s64 whole, __s64 expected)
{
	__u64 left = (__u64)(whole - expected) >> 36;

	if (!left)
		return FB_ONE;
	return fb_min(((__u64)p << 2) / left, 1ULL << 38) << 22;
}

/* Spaces signals evenly (Floyd and Jacobson section 7; `wait` as in ns-2). */
static __always_inline __s64 red_spaced(const struct red_config *config, const struct red_state *state)
{
	__s64 expected = fb_mul(state->count, state->p, RED_COUNT);

	if (config->wait) {
		if (expected < FB_ONE)
			return 0;
		return expected < 2 * FB_ONE ? red_over(state->p, 2 * FB_ONE, expected) : FB_ONE;
	}
	return expected < FB_ONE ? red_over(state->p, FB_ONE, expected) : FB_ONE;
}

static __always_inline int red_arrival(const struct red_config *config, struct red_state *state,
				       const struct fb_queue *queue, const struct fb_packet *packet)
{
	__s64 length = (__s64)queue->bytes << FB_LENGTH;
	__s64 full = config->gentle ? 2 * config->max_th : config->max_th;
	__s64 size, p;
	__u64 i;

	/* An idle link counts as arrivals to an empty queue. */
	if (queue->idle_ns)
		state->average = fb_part(state->average,
					 fb_power(FB_ONE - state->w_q,
						  fb_times(queue->idle_ns, config->per_ns)));
	for (i = 0; i < 64 && i < packet->segments; i++)
		state->average = fb_toward(state->average, length, state->w_q);
	size = config->per_byte ? fb_times(packet->bytes, config->per_byte)
				: (__s64)packet->segments << RED_COUNT;
	state->count += size;

	/* With one packet or none waiting there is nothing to shorten. */
	if (state->average < config->min_th ||
	    (queue->packets <= 1 && queue->bytes <= (__u64)config->packet_bytes)) {
		state->p = 0;
		state->above_min = 0;
		return FB_PASS;
	}
	if (state->average >= full) {
		state->p = FB_ONE;
		state->count = 0;
		return FB_DROP;
	}
	if (!state->above_min) {
		/* The average has just risen above min_th: start counting here. */
		state->above_min = 1;
		state->count = size;
		return FB_PASS;
	}
	state->p = red_base(config, state);
	p = red_spaced(config, state);
	if (config->per_byte)
		p = p < FB_ONE ? fb_min(fb_mul(p, size, RED_COUNT), FB_ONE) : FB_ONE;
	else
		p = fb_of_segments(p, packet);
	if (!fb_chance(p, packet->random))
		return FB_PASS;
	state->count = 0;
	return FB_MARK;
}

/* For a law whose arrivals are RED's: its config and state begin with those of RED. */
#define LAW_ARRIVAL
#define RED_ARRIVAL                                                                              \
	static __always_inline int law_arrival(const struct law_config *config,                  \
					       struct law_state *state,                          \
					       const struct fb_queue *queue,                     \
					       const struct fb_packet *packet)                   \
	{                                                                                        \
		return red_arrival((const struct red_config *)config, (struct red_state *)state, \
				   queue, packet);                                               \
	}

#define LAW_OVERFLOW
#define LAW_TIMES
#define RED_OVERFLOW                                                                        \
	static __always_inline void law_overflow(const struct law_config *config,           \
						 struct law_state *state, __u64 now_ns)     \
	{                                                                                   \
		(void)config;                                                               \
		(void)now_ns;                                                               \
		state->count = 0;                                                           \
	}

#endif
