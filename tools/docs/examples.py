"""An example of every kind of traffic for the page of scenarios. A test runs each."""

#: The examples by kind of traffic, without a link and a law: a reader adds them to a scenario.
TRAFFIC = {
    "ftp": """\
```toml
[[traffic]]
kind  = "ftp"              # endless data, from a random time of the first second on
flows = 10
rtt   = ["40ms", "80ms"]   # five flows each
tcp   = "linux-cubic"
start = { uniform = ["0s", "1s"] }
```
""",
    "mice": """\
```toml
[[traffic]]
kind  = "mice"             # sends for 0.2 s and is silent for 0.8 s, on average
flows = 20
rtt   = "60ms"
on    = "200ms"
off   = "800ms"
```
""",
    "web": """\
```toml
[[traffic]]
kind     = "web"           # 5 sessions of 4 requests a second
flows    = 5
rtt      = "60ms"
requests = 4
scale    = "2kB"           # a mean of scale/(shape - 1) = 10 kB
shape    = 1.2
```

The metrics `flow_completion_p50_s` and `flow_completion_p95_s` tell how long an answer takes.
""",
    "pages": """\
```toml
[[traffic]]
kind       = "pages"       # a page of 8 objects, then 2 s to read it
flows      = 5
rtt        = "60ms"
objects    = 8
object_gap = "50ms"
page_gap   = "2s"
scale      = "3kB"
```
""",
    "onoff": """\
```toml
[[traffic]]
kind     = "onoff"         # bursts of half a second on average, as long again without
flows    = 4
rtt      = "40ms"
rate     = "2Mbit/s"
on       = "500ms"
on_shape = 1.5             # of heavy tail
off      = "500ms"
```
""",
    "cbr": """\
```toml
[[traffic]]
kind   = "cbr"             # 2 Mbit/s that no loss slows down, for two seconds
flows  = 1
rtt    = "40ms"
packet = "500B"
rate   = "2Mbit/s"
start  = "1s"
stop   = "3s"
```
""",
    "voice": """\
```toml
[[traffic]]
kind  = "voice"            # G.711: 200 bytes every 20 ms
flows = 4
rtt   = "40ms"
talk  = "1.004s"
pause = "1.587s"
start = { uniform = ["0s", "20ms"] }
```

The metrics `voice_delay_s`, `voice_jitter_s` and `voice_loss` tell what the calls get.
""",
    "frames": """\
```toml
[[traffic]]
kind     = "frames"
flows    = 1
rtt      = "40ms"
packet   = "1500B"
frame    = "12p"
interval = "33.3ms"
```
""",
    "video": """\
```toml
[[traffic]]
kind   = "video"
flows  = 2
rtt    = "40ms"
stack  = "linux"
ladder = ["500kbit/s", "1Mbit/s", "2.5Mbit/s"]
```

The metrics `video_rate_bps` and `video_stalled` tell what the viewers get. Playing begins with the
first segment, and goes on after a stall with the next one.
""",
    "arrivals": """\
```toml
[[traffic]]
kind        = "arrivals"
file        = "my.pcapng"
destination = "192.168.1.0/24"
start       = "1s"
```

[arrivals.md](../howto/arrivals.md) has the formats and an example that runs.
""",
    "program": """\
```toml
[[traffic]]
kind   = "program"         # iperf3 as it is, over the sockets of a real kernel
flows  = 1
server = "iperf3 -s"       # what it sends crosses the bottleneck
client = "iperf3 -R -c $FOREBAY_SERVER -t 8"
files  = "my.conf"         # all that its folder has
packet = "1500B"
rtt    = "40ms"
start  = "1s"
```

It runs with `--engine kernel`, and in real time with `--engine link`:
[real-kernel.md](../howto/real-kernel.md#any-program). Other engines refuse it.
""",
    "external": """\
```toml
[[traffic]]
kind  = "external"         # three flows of your own program, both ways
flows = 3
rtt   = "40ms"
loss  = "0.5%"             # at random, behind the queue
```

A program sends these packets, in Rust, C or Python: [your-stack.md](../howto/your-stack.md). Without one,
such as in `forebay run`, a scenario with external traffic is refused.
""",
}

KERNEL = """\
```toml
[kernel]
tcp      = "vegas"        # whatever the traffic's own `tcp` is
offloads = true
sysctls  = { "net.ipv4.tcp_slow_start_after_idle" = 0 }
```

`--engine kernel` follows it: [real-kernel.md](../howto/real-kernel.md); `--engine link` follows `pcap`.
What else an engine passes over is a line, so that one scenario runs on all of them.
"""

LINK = """\
Two bottlenecks in a row, with traffic across both and across each. `[bottleneck]` is the first
link, from `left` to `right`; a `path` names the nodes that the data passes:

```toml
# chain.toml
duration = "10s"

[bottleneck]
rate   = "10Mbit/s"
delay  = "5ms"
buffer = "100p"

[[link]]
name   = "second"
from   = "right"
to     = "far"
rate   = "8Mbit/s"
delay  = "5ms"
buffer = "100p"
law    = "droptail"                # always; without it, the law under test

[[traffic]]
label = "across both"
kind  = "ftp"
flows = 5
rtt   = "80ms"
path  = ["left", "right", "far"]

[[traffic]]
label = "first link"
kind  = "ftp"
flows = 5
rtt   = "60ms"

[[traffic]]
label = "second link"
kind  = "cbr"
flows = 1
rtt   = "40ms"
rate  = "2Mbit/s"
path  = ["right", "far"]

[[law]]
kind   = "pi"
target = "40p"
```

```console
$ forebay run chain.toml --set link.second.rate=6Mbit/s
```

Tables and figures name each link.
"""
