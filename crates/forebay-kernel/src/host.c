/* One law of the kernel for the host: build.rs includes this with FOREBAY_LAW and its names. */
#include "law.h"
#include "host.h"

#define NAME(name) #name,

static const char *const config_fields[] = {LAW_CONFIG(NAME) 0};
static const char *const state_fields[] = {LAW_STATE(NAME) 0};

#ifdef LAW_TICK
static void tick(const void *config, void *state, const struct fb_queue *queue)
{
	law_tick(config, state, queue);
#ifdef LAW_DESIGN
	law_design(config, state, queue->now_ns);
#endif
}
#endif

static int arrival(const void *config, void *state, const struct fb_queue *queue,
		   const struct fb_packet *packet)
{
#ifdef LAW_AVERAGE
	law_averages(config, state, queue, packet);
#endif
	return law_arrival(config, state, queue, packet);
}

#ifdef LAW_OVERFLOW
static void overflow(const void *config, void *state, __u64 now_ns)
{
	law_overflow(config, state, now_ns);
}
#endif

#ifdef LAW_IDLE
static void idle(const void *config, void *state, __u64 now_ns)
{
	law_idle(config, state, now_ns);
}
#endif

const struct host_law HOST_LAW = {
	.kind = HOST_KIND,
	.config = config_fields,
	.state = state_fields,
	.arrival = arrival,
#ifdef LAW_TICK
	.tick = tick,
#endif
#ifdef LAW_OVERFLOW
	.overflow = overflow,
#endif
#ifdef LAW_IDLE
	.idle = idle,
#endif
};
