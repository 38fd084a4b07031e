/* Your transport stands here. This one is an example: a window that grows by a packet a round trip, and
 * is halved by a loss or a mark; every packet is acknowledged. It does no input or output and reads no
 * clock: it is given packets and times in ns, and asked for packets and for its next timer. */
#ifndef TRANSPORT_H
#define TRANSPORT_H

#include <stdbool.h>
#include <stdint.h>

enum { PACKET_BYTES = 1472, ACK_BYTES = 9, MOST_UNDER_WAY = 4096 };

/* The end that sends data without end. */
typedef struct sender {
  uint64_t start_ns, next, oldest; /* numbers of packets; those before `oldest` are done */
  uint64_t sent_ns[MOST_UNDER_WAY]; /* by number, when; 0 once it is acknowledged or lost */
  uint32_t under_way;
  double window, threshold;
  uint64_t recovered; /* losses and marks of packets before this one have been answered */
  double rtt_ns, deviation_ns;
  bool measured;
  uint64_t heard_ns; /* when the last packet was sent, or acknowledged */
  unsigned backoff;
} sender;

void sender_init(sender *of, uint64_t start_ns);
/* Whether there is a packet to be sent now, and its number. */
bool sender_transmit(sender *of, uint64_t now_ns, uint64_t *number);
void sender_receive(sender *of, uint64_t now_ns, uint64_t number, bool marked);
/* When sender_handle_timeout is due; UINT64_MAX for never. */
uint64_t sender_timeout(const sender *of);
void sender_handle_timeout(sender *of, uint64_t now_ns);

#endif
