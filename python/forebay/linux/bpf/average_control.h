/* The difference equation over an average of the queue (equations 3 to 5 of Bigdeli, Haeri and Pakravan). */
#include "difference.h"

#define LAW_CONFIG(FIELD) \
	FIELD(target) DIFFERENCE_CONFIG(FIELD) FIELD(w_q) FIELD(min_th) FIELD(at_samples)
#define LAW_STATE(FIELD) DIFFERENCE_STATE(FIELD) FIELD(average)
LAW_STRUCTS

#define LAW_TICK
static __always_inline void law_tick(const struct law_config *config, struct law_state *state,
				     const struct fb_queue *queue)
{
	if (config->at_samples)
		state->average = fb_toward(state->average, (__s64)queue->bytes << FB_LENGTH, config->w_q);
	difference_step((struct difference_state *)state, config->a, config->b, config->c,
			state->average - config->target);
}

#define LAW_AVERAGE
static __always_inline __s64 law_weight(const struct law_config *config, const struct fb_packet *packet)
{
	if (config->at_samples)
		return 0;
	/* n packets to one queue: 1 − (1 − w)^n. */
	return packet->segments == 1
		       ? config->w_q
		       : FB_ONE - fb_power(FB_ONE - config->w_q, packet->segments);
}

#define LAW_ARRIVAL
static __always_inline int law_arrival(const struct law_config *config, struct law_state *state,
				       const struct fb_queue *queue, const struct fb_packet *packet)
{
	if ((__s64)queue->bytes << FB_LENGTH <= config->min_th)
		return FB_PASS;
	return fb_chance(fb_of_segments(state->p, packet), packet->random) ? FB_MARK : FB_PASS;
}
