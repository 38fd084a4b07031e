/* Your transport in the scenarios of RFC 7928, under each of these laws, or those that are named:
 * ./rfc7928 codel pie. The exit status is 1 if a scenario fails. With FOREBAY_RESULTS=results in the
 * environment it also writes results/rfc7928.json, and results/rfc7928.xml in the format of JUnit. */
#include <forebay.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "results.h"
#include "transport.h"

enum { MOST_FLOWS = 64 };

static const char *const LAWS[] = {"droptail", "ared", "codel", "pie", "pi2", "fq-codel", "dualpi2"};

static sender senders[MOST_FLOWS];
static uint64_t received[MOST_FLOWS];

static void send(forebay_network *network, uint64_t now_ns, forebay_datagram packet) {
  char error[200];
  if (forebay_network_send(network, now_ns, &packet, error, sizeof error) != FOREBAY_OK)
    fprintf(stderr, "%s\n", error);
}

/* Sends all that the sender of a flow has to send. */
static void fill(forebay_network *network, uint32_t flow, uint64_t now_ns) {
  uint64_t number;
  while (sender_transmit(&senders[flow], now_ns, &number))
    send(network, now_ns,
         (forebay_datagram){.handle = number, .flow = flow, .bytes = PACKET_BYTES,
                            .end = FOREBAY_SOURCE, .ecn = FOREBAY_ECT0});
}

/* The loop: packets, and timers where nothing comes before them. */
static int drive(forebay_network *network, uint32_t flows) {
  while (1) {
    uint64_t due_ns = UINT64_MAX;
    uint32_t first = 0;
    for (uint32_t flow = 0; flow < flows; flow++) {
      uint64_t at_ns = sender_timeout(&senders[flow]);
      if (at_ns < due_ns) due_ns = at_ns, first = flow;
    }
    forebay_event event;
    switch (forebay_network_poll(network, due_ns, &event)) {
    case FOREBAY_DELIVERED:
      if (event.end == FOREBAY_SINK) { /* the number is acknowledged, and the mark echoed */
        received[event.flow]++;
        uint64_t marked = event.ecn == FOREBAY_CE;
        send(network, event.time_ns,
             (forebay_datagram){.handle = event.handle << 1 | marked, .flow = event.flow,
                                .bytes = ACK_BYTES, .end = FOREBAY_SINK, .ecn = FOREBAY_NOT_ECT});
      } else {
        sender_receive(&senders[event.flow], event.time_ns, event.handle >> 1, event.handle & 1);
        fill(network, event.flow, event.time_ns);
      }
      break;
    case FOREBAY_LOST: /* no transport may learn of it so */
      break;
    case FOREBAY_TIME:
      sender_handle_timeout(&senders[first], event.time_ns);
      fill(network, first, event.time_ns);
      break;
    case FOREBAY_END:
      return 0;
    default:
      return fprintf(stderr, "%s\n", forebay_network_fault(network)), 1;
    }
  }
}

static double metric(const forebay_network *network, const char *traffic, const char *name) {
  double value = 1; /* the share of what is alone */
  forebay_network_metric(network, traffic, name, &value);
  return value;
}

static int run(const char *name, const char *scenario, const char *law, results *to) {
  char error[300], why[300] = "";
  forebay_network_settings settings = {.scenario = scenario, .law = law, .seed = 1};
  forebay_network *network = forebay_network_new(&settings, error, sizeof error);
  if (!network) return fprintf(stderr, "%s\n", error), 1;
  uint32_t flows = forebay_network_flows(network);
  if (flows > MOST_FLOWS) return fprintf(stderr, "%s: %" PRIu32 " flows\n", name, flows), 1;
  for (uint32_t flow = 0; flow < flows; flow++) { /* they start one after another */
    sender_init(&senders[flow], 100000000u * (uint64_t)flow);
    received[flow] = 0;
  }
  if (drive(network, flows) || forebay_network_finish(network) != FOREBAY_OK) return 1;

  /* What every transport should reach; put your own limits here. */
  for (uint32_t flow = 0; flow < flows && !*why; flow++)
    if (received[flow] <= 100) snprintf(why, sizeof why, "flow %" PRIu32 " starves", flow);
  result got = {.law = law, .scenario = name, .failure = why,
                .share = metric(network, "external", "share"),
                .utilisation = metric(network, NULL, "utilisation"),
                .delay_p95_s = metric(network, NULL, "delay_p95_s")};
  if (!(got.utilisation > 0.3)) snprintf(why, sizeof why, "the link is idle");
  results_add(to, &got);
  forebay_network_free(network);
  return *why != 0;
}

int main(int count, char **words) {
  const char *const *laws = count > 1 ? (const char *const *)words + 1 : LAWS;
  size_t number_of_laws = count > 1 ? (size_t)count - 1 : sizeof LAWS / sizeof *LAWS;
  results to;
  if (results_open(&to, getenv("FOREBAY_RESULTS"))) return 1;
  int failed = 0;
  const char *name, *scenario;
  for (size_t law = 0; law < number_of_laws; law++)
    for (size_t number = 0; (scenario = forebay_network_rfc7928(number, &name)); number++)
      failed |= run(name, scenario, laws[law], &to);
  return failed | results_close(&to);
}
