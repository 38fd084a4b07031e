/* PI-PD of Ryu, Ryu, Jeong and Park: crates/forebay-aqm/src/laws/pi_pd.rs. */
#include "../difference.h"

/* a: α/(2·Q_ref) (11); crossing: α/(B − Q_ref) (15); the first as difference_step takes it. */
#define LAW_CONFIG(FIELD) FIELD(target) FIELD(a) FIELD(crossing) FIELD(buffer)
#define LAW_STATE(FIELD) DIFFERENCE_STATE(FIELD)
LAW_STRUCTS

/* γ̂: how far the queue moves in the next interval, by (13) and (14): change²/change_1, or as now
 * where it has just turned. */
static __always_inline __s64 predicted_change(__s64 change, __s64 change_1)
{
	__u64 size = fb_size(change), size_1 = fb_size(change_1);
	__u64 ratio; /* in units of 2^-20; a length has 56 bits, of which 16 are left out */

	if ((change >= 0) != (change_1 >= 0) || !(size_1 >> 16))
		return change;
	ratio = fb_min((size >> 16 << 20) / (size_1 >> 16), 1ULL << 42);
	size = fb_min(fb_mul(size, ratio, 20), 1ULL << 58);
	return change < 0 ? -(__s64)size : (__s64)size;
}

#define LAW_TICK
static __always_inline void law_tick(const struct law_config *config, struct law_state *state,
				     const struct fb_queue *queue)
{
	struct difference_state *p = (struct difference_state *)state;
	__s64 length = (__s64)queue->bytes << FB_LENGTH;
	__s64 error = length - config->target, predicted;

	if ((error >= 0) == (p->error_1 >= 0)) {
		difference_step(p, config->a, config->a | 1ULL << 63, 0, error);
		return;
	}
	/* With γ̂ = ratio·(e_k − e_{k−1}), (15) is α·(e_k + γ̂)/(B − Q_ref). */
	predicted = predicted_change(error - p->error_1, p->error_1 - p->error_2);
	/* The queue cannot leave [0, B], for any ratio. */
	predicted = fb_clamp(predicted, -length, config->buffer - length);
	difference_move(p, fb_times(error + predicted, config->crossing), error);
}
