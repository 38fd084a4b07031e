#include "transport.h"

#include <math.h>
#include <string.h>

static const double LEAST_WINDOW = 2, FIRST_RTT_NS = 333e6; /* RFC 9002, section 6.2.2 */
static const uint64_t REORDERING = 3;                       /* RFC 9002, section 6.1.1 */

void sender_init(sender *of, uint64_t start_ns) {
  memset(of, 0, sizeof *of);
  of->start_ns = of->heard_ns = start_ns;
  of->window = 10, of->threshold = INFINITY;
  of->rtt_ns = FIRST_RTT_NS, of->deviation_ns = FIRST_RTT_NS / 2;
}

bool sender_transmit(sender *of, uint64_t now_ns, uint64_t *number) {
  bool room = of->under_way < (uint32_t)of->window && of->next - of->oldest < MOST_UNDER_WAY;
  if (now_ns < of->start_ns || !room) return false;
  *number = of->next++;
  of->sent_ns[*number % MOST_UNDER_WAY] = now_ns + 1; /* 0 means that it is done */
  of->under_way++, of->heard_ns = now_ns;
  return true;
}

/* The packet is done, one way or the other; when it was sent, and 0 if it was done before. */
static uint64_t finish(sender *of, uint64_t number) {
  if (number < of->oldest || number >= of->next) return 0;
  uint64_t sent_ns = of->sent_ns[number % MOST_UNDER_WAY];
  if (!sent_ns) return 0;
  of->sent_ns[number % MOST_UNDER_WAY] = 0, of->under_way--;
  while (of->oldest < of->next && !of->sent_ns[of->oldest % MOST_UNDER_WAY]) of->oldest++;
  return sent_ns;
}

static void congested(sender *of, uint64_t number) {
  if (number < of->recovered) return;
  of->threshold = of->window = fmax(of->window / 2, LEAST_WINDOW);
  of->recovered = of->next;
}

void sender_receive(sender *of, uint64_t now_ns, uint64_t number, bool marked) {
  uint64_t sent_ns = finish(of, number);
  if (!sent_ns) return;
  double rtt_ns = (double)(now_ns + 1 - sent_ns);
  if (!of->measured) of->rtt_ns = rtt_ns, of->deviation_ns = rtt_ns / 2, of->measured = true;
  of->deviation_ns += (fabs(of->rtt_ns - rtt_ns) - of->deviation_ns) / 4;
  of->rtt_ns += (rtt_ns - of->rtt_ns) / 8;
  of->heard_ns = now_ns, of->backoff = 0;
  bool lost = false;
  while (of->under_way && of->oldest + REORDERING <= number) {
    uint64_t gone = of->oldest;
    finish(of, gone), congested(of, gone), lost = true;
  }
  if (marked) congested(of, number);
  if (!lost && !marked) of->window += of->window < of->threshold ? 1 : 1 / of->window;
}

uint64_t sender_timeout(const sender *of) {
  if (of->next == 0) return of->start_ns;
  if (of->under_way == 0) return UINT64_MAX;
  double wait_ns = fmax(of->rtt_ns + 4 * of->deviation_ns, 1e6);
  return of->heard_ns + ((uint64_t)wait_ns << (of->backoff < 6 ? of->backoff : 6));
}

void sender_handle_timeout(sender *of, uint64_t now_ns) {
  if (of->under_way == 0 || now_ns < sender_timeout(of)) return;
  memset(of->sent_ns, 0, sizeof of->sent_ns);
  of->under_way = 0, of->oldest = of->next; /* nothing has been heard for too long: all is lost */
  of->threshold = fmax(of->window / 2, LEAST_WINDOW), of->window = LEAST_WINDOW;
  of->recovered = of->next, of->backoff++, of->heard_ns = now_ns;
}
