/* PD-RED of Sun, Ko, Chen, Chan and Zukerman: crates/forebay-aqm/src/laws/pd_red.rs. */
#include "../difference.h"
#include "../red.h"

#define LAW_CONFIG(FIELD) RED_CONFIG(FIELD) FIELD(target) FIELD(a) FIELD(b)
#define LAW_STATE(FIELD) RED_STATE(FIELD) FIELD(error_1)
LAW_STRUCTS
RED_OVERFLOW
RED_ARRIVAL

/* (1) and (3), on max_p. */
#define LAW_TICK
static __always_inline void law_tick(const struct law_config *config, struct law_state *state,
				     const struct fb_queue *queue)
{
	struct difference_state max_p = {.p = state->max_p, .error_1 = state->error_1};

	(void)queue;
	difference_step(&max_p, config->a, config->b, 0, state->average - config->target);
	state->max_p = max_p.p;
	state->error_1 = max_p.error_1;
}
