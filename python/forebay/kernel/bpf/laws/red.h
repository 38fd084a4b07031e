/* RED of Floyd and Jacobson: crates/forebay-core/src/laws/red.rs. */
#include "../red.h"

#define LAW_CONFIG(FIELD) RED_CONFIG(FIELD)
#define LAW_STATE(FIELD) RED_STATE(FIELD)
LAW_STRUCTS
RED_OVERFLOW

#define LAW_ARRIVAL
static __always_inline int law_arrival(const struct law_config *config, struct law_state *state,
				       const struct fb_queue *queue, const struct fb_packet *packet)
{
	return red_arrival((const struct red_config *)config, (struct red_state *)state, queue, packet);
}
