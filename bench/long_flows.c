/* Long TCP flows that start when a scenario says, each by itself:
 *
 *   long_flows serve PORT FLOWS
 *   long_flows send ADDRESS PORT CONGESTION_CONTROL BASE_NS < OFFSETS
 *
 * BASE_NS is a time of CLOCK_MONOTONIC; OFFSETS has a line for each flow, ns from there to its SYN. iperf3
 * connects its flows one after the other, and begins when all are there, which is another transient.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 1024, CHUNK = 1 << 17, NS = 1000000000, NS_PER_MS = 1000000 };
static char data[CHUNK];

static int fail(const char *what)
{
	perror(what);
	exit(1);
}

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * NS + now.tv_nsec;
}

static struct sockaddr_in address(const char *host, const char *port)
{
	struct sockaddr_in it = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};

	if (host && !inet_pton(AF_INET, host, &it.sin_addr))
		fail(host);
	return it;
}

static void watch(int poll, int socket, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.fd = socket};

	if (epoll_ctl(poll, EPOLL_CTL_ADD, socket, &event))
		fail("epoll_ctl");
}

/* Reads, and ends when so many flows have. */
static int serve(const char *port, int left)
{
	struct sockaddr_in here = address(0, port);
	struct epoll_event found[64];
	int poll = epoll_create1(0), listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;

	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(listener, (struct sockaddr *)&here, sizeof here) || listen(listener, MOST))
		fail(port);
	watch(poll, listener, EPOLLIN);
	while (left) {
		int ready = epoll_wait(poll, found, 64, -1), i;

		for (i = 0; i < ready; i++) {
			int flow = found[i].data.fd;
			ssize_t got;

			if (flow == listener) {
				while ((flow = accept4(listener, 0, 0, SOCK_NONBLOCK)) >= 0)
					watch(poll, flow, EPOLLIN);
				continue;
			}
			/* Nobody looks at what came: it is not copied. */
			while ((got = recv(flow, data, CHUNK, MSG_TRUNC)) > 0)
				;
			if (!got || (errno != EAGAIN && errno != EINTR)) {
				close(flow);
				left--;
			}
		}
	}
	return 0;
}

static void fill(int flow)
{
	while (send(flow, data, CHUNK, MSG_NOSIGNAL) > 0)
		;
	if (errno != EAGAIN && errno != ENOTCONN && errno != EINPROGRESS)
		fail("send");
}

/* Sends until it is killed. */
static _Noreturn void send_all(const char *host, const char *port, const char *congestion_control, int64_t base_ns)
{
	struct sockaddr_in there = address(host, port);
	struct epoll_event found[64];
	int poll = epoll_create1(0), hello = socket(AF_INET, SOCK_DGRAM, 0), flows = 0, begun = 0;
	static int64_t start_ns[MOST];

	while (flows < MOST && scanf("%lld", (long long *)&start_ns[flows]) == 1)
		start_ns[flows++] += base_ns;
	/* Who the neighbours are is known before the first flow, and a law's clock goes. */
	sendto(hello, data, 1, 0, (struct sockaddr *)&there, sizeof there);
	for (;;) {
		int wait_ms = -1, ready, i;

		while (begun < flows && start_ns[begun] <= now_ns()) {
			int flow = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

			if (setsockopt(flow, IPPROTO_TCP, TCP_CONGESTION, congestion_control,
				       strlen(congestion_control)))
				fail(congestion_control);
			if (connect(flow, (struct sockaddr *)&there, sizeof there) && errno != EINPROGRESS)
				fail("connect");
			watch(poll, flow, EPOLLOUT | EPOLLET);
			begun++;
		}
		if (begun < flows) {
			int64_t left_ns = start_ns[begun] - now_ns();
			struct timespec pause = {0, left_ns > 0 ? left_ns % NS_PER_MS : 0};

			wait_ms = left_ns > 0 ? (int)(left_ns / NS_PER_MS) : 0;
			/* What is left of a millisecond, exactly. */
			if (!wait_ms)
				nanosleep(&pause, 0);
		}
		ready = epoll_wait(poll, found, 64, wait_ms);
		for (i = 0; i < ready; i++)
			fill(found[i].data.fd);
	}
}

int main(int words, char **word)
{
	if (words == 4 && !strcmp(word[1], "serve"))
		return serve(word[2], atoi(word[3]));
	if (words == 6 && !strcmp(word[1], "send"))
		send_all(word[2], word[3], word[4], atoll(word[5]));
	fprintf(stderr, "long_flows: serve PORT FLOWS, or send ADDRESS PORT CONGESTION_CONTROL BASE_NS\n");
	return 2;
}
