/* Adaptive RED of Floyd, Gummadi and Shenker: crates/forebay-aqm/src/laws/ared.rs. */
#include "../red.h"

#define LAW_CONFIG(FIELD)                                                               \
	RED_CONFIG(FIELD) FIELD(low) FIELD(high) FIELD(alpha) FIELD(beta) FIELD(pause_ns) \
	FIELD(bottom) FIELD(top)
#define LAW_STATE(FIELD) RED_STATE(FIELD) FIELD(last_change_ns)
LAW_STRUCTS
RED_OVERFLOW

static __always_inline int law_arrival(const struct law_config *config, struct law_state *state,
				       const struct fb_queue *queue, const struct fb_packet *packet)
{
	int verdict =
		red_arrival((const struct red_config *)config, (struct red_state *)state, queue, packet);

	if ((__s64)queue->now_ns <= state->last_change_ns + config->pause_ns)
		return verdict;
	/* The bounds stop further change; a last step may pass them. */
	if (state->average < config->low && state->max_p > config->bottom)
		state->max_p = fb_part(state->max_p, config->beta);
	else if (state->average > config->high && state->max_p < config->top)
		state->max_p += fb_min(config->alpha, state->max_p >> 2);
	else
		return verdict;
	state->last_change_ns = queue->now_ns;
	return verdict;
}
