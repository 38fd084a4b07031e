/* AVQ of Kunniyur and Srikant: crates/forebay-aqm/src/laws/avq.rs. */
#include "../virtual_queue.h"

/* gamma: in units of 2^-60. alpha: factor from a length to a rate. */
#define LAW_CONFIG(FIELD) FIELD(buffer) FIELD(gamma) FIELD(alpha) FIELD(count_drops)
#define LAW_STATE(FIELD) FIELD(p) VIRTUAL_QUEUE_STATE(FIELD) FIELD(last_ns)
LAW_STRUCTS

#define LAW_SEES_MARKS
#define LAW_TIMES
#define LAW_ARRIVAL
static __always_inline int law_arrival(const struct law_config *config, struct law_state *state,
				       const struct fb_queue *queue, const struct fb_packet *packet)
{
	struct virtual_queue virtual = {state->backlog, state->capacity, state->served_ns};
	int overflow = virtual_queue_overflows(&virtual, config->buffer, queue->now_ns, packet->bytes);
	__s64 wanted;

	if (!overflow || packet->marks || config->count_drops) {
		/* Equation (1) of the E-AVQ paper from one arrival to the next, where λ·Δt is this packet. */
		wanted = virtual_served(fb_part(queue->rate, config->gamma),
					queue->now_ns - state->last_ns);
		state->last_ns = queue->now_ns;
		virtual_queue_adjust(
			&virtual,
			fb_times(wanted - ((__s64)packet->bytes << FB_LENGTH), config->alpha), queue->rate);
	}
	state->backlog = virtual.backlog;
	state->capacity = virtual.capacity;
	state->served_ns = virtual.served_ns;
	/* Each overflow is a signal: `p` is a verdict here, no probability. */
	state->p = overflow ? FB_ONE : 0;
	return overflow ? FB_MARK : FB_PASS;
}
