/* A bottleneck in forty lines: Poisson arrivals of two flows at a link of 10 Mbit/s, under any law.
 * cc queue.c $(pkg-config --cflags --libs forebay) -lm -o queue && ./queue pie target=15ms */
#include <forebay.h>
#include <math.h>
#include <stdio.h>

static uint64_t state = 1;

/* Uniform on (0, 1]: xorshift64* (Vigna 2016). */
static double uniform(void) {
  state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
  return (double)((state * 2685821657736338717u >> 11) + 1) / 9007199254740992.0;
}

int main(int count, char **words) {
  char error[300];
  forebay_settings settings = {.law = count > 1 ? words[1] : "pi", .rate = "10Mbit/s",
                               .buffer = "800p", .packet = "1000B", .ecn = true, .seed = 1};
  settings.params = (const char *const *)words + (count > 1 ? 2 : 1);
  forebay_queue *queue = forebay_new(&settings, error, sizeof error);
  if (!queue) return fprintf(stderr, "%s\n", error), 2;

  const uint64_t end = 10000000000u, send_ns = 800000; /* 10 s; 1000 bytes take 0.8 ms */
  uint64_t arrival = 0, free_at = FOREBAY_NEVER, handle = 0, waited_ns = 0;
  while (1) {
    uint64_t tick = forebay_next_timeout(queue), now = tick < free_at ? tick : free_at;
    if (arrival < now) now = arrival;
    if (now > end) break;
    if (now == tick) { /* first the law's clock, then the link, then what comes */
      forebay_handle_timeout(queue, now);
    } else {
      if (now == arrival) {
        forebay_packet packet = {.handle = handle, .flow = handle % 2, .bytes = 1000,
                                 .ecn = handle % 2 ? FOREBAY_ECT0 : FOREBAY_NOT_ECT};
        forebay_enqueue(queue, now, &packet), handle++;
        arrival += (uint64_t)(-log(uniform()) * send_ns / 1.2); /* 1.2 times what the link sends */
        if (free_at != FOREBAY_NEVER) continue;
      }
      forebay_departure left;
      uint64_t wait_until = FOREBAY_NEVER;
      int found = forebay_dequeue(queue, now, &left, &wait_until);
      free_at = found == FOREBAY_OK ? now + send_ns : wait_until;
      if (found == FOREBAY_OK) waited_ns += left.sojourn_ns;
    }
  }
  forebay_loss loss;
  uint64_t lost = 0;
  while (forebay_next_lost(queue, &loss) == FOREBAY_OK) lost++;
  forebay_counts n;
  forebay_count(queue, &n);
  printf("arrived %llu, sent %llu, marked %llu, lost %llu, waiting %llu, waited %.6f ms\n",
         (unsigned long long)n.arrived, (unsigned long long)n.sent, (unsigned long long)n.marked,
         (unsigned long long)lost, (unsigned long long)n.queued, 1e-6 * waited_ns / n.sent);
  forebay_free(queue);
  return 0;
}
