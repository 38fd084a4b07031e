/* A law of the kernel as the host calls it: src/lib.rs has the same. */
#include <linux/types.h>

struct fb_queue;
struct fb_packet;

struct host_law {
	const char *kind;
	/* Names of the fields, each list with a zero behind it. */
	const char *const *config;
	const char *const *state;
	void (*tick)(const void *, void *, const struct fb_queue *);
	int (*arrival)(const void *, void *, const struct fb_queue *, const struct fb_packet *);
	void (*overflow)(const void *, void *, __u64);
	void (*idle)(const void *, void *, __u64);
};
