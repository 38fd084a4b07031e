/* The difference equation over the queue itself. */
#include "difference.h"

#define LAW_CONFIG(FIELD) FIELD(target) DIFFERENCE_CONFIG(FIELD)
#define LAW_STATE(FIELD) DIFFERENCE_STATE(FIELD)
LAW_STRUCTS

#define LAW_TICK
static __always_inline void law_tick(const struct law_config *config, struct law_state *state,
				     const struct fb_queue *queue)
{
	difference_step((struct difference_state *)state, config->a, config->b, config->c,
			((__s64)queue->bytes << FB_LENGTH) - config->target);
}
