"""Examples of every kind of traffic for the page of the scenario file; a test runs each of them."""

#: Examples by kind, without a link and a law.
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

The metrics `flow_completion_p50_s` and `flow_completion_p95_s` report how long a response takes.
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
kind     = "onoff"         # bursts of half a second on average, and equally long pauses
flows    = 4
rtt      = "40ms"
rate     = "2Mbit/s"
on       = "500ms"
on_shape = 1.5             # heavy-tailed
off      = "500ms"
```
""",
    "cbr": """\
```toml
[[traffic]]
kind   = "cbr"             # 2 Mbit/s for two seconds, regardless of losses
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

The metrics `voice_delay_s`, `voice_jitter_s` and `voice_loss` report the quality of the calls.
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

The metrics `video_rate_bps` and `video_stalled` report the quality for the viewers.
Playback begins with the first segment, and resumes after a stall with the next one.
""",
    "arrivals": """\
```toml
[[traffic]]
kind        = "arrivals"
file        = "my.pcapng"
destination = "192.168.1.0/24"
start       = "1s"
```

[Use your own packets](../howto/arrivals.md) has the formats and a complete example.
""",
    "program": """\
```toml
[[traffic]]
kind   = "program"         # unmodified iperf3, over the sockets of a real kernel
flows  = 1
server = "iperf3 -s"       # what it sends crosses the bottleneck
client = "iperf3 -R -c $FOREBAY_SERVER -t 8"
files  = "my.conf"         # the only file in its folder
packet = "1500B"
rtt    = "40ms"
start  = "1s"
```

Programs run with `--engine kernel`, and in real time with `--engine link` ([any program](../howto/real-kernel.md#any-program)).
Other engines refuse them.
""",
    "external": """\
```toml
[[traffic]]
kind  = "external"         # three flows of your own program, in both directions
flows = 3
rtt   = "40ms"
loss  = "0.5%"             # random loss behind the queue
```

A program in Rust, C or Python sends these packets ([Test your transport](../howto/your-stack.md)).
`forebay run`, which has no such program, refuses a scenario with external traffic.
""",
}

KERNEL = """\
```toml
[kernel]
tcp      = "vegas"        # overrides the `tcp` of every traffic
offloads = true
sysctls  = { "net.ipv4.tcp_slow_start_after_idle" = 0 }
```

`--engine kernel` uses the whole table ([Set up the hosts](../howto/real-kernel.md#set-up-the-hosts)), and `--engine link` only `pcap`.
Other engines ignore the table with a remark, so one scenario runs on all of them.
"""

LINK = """\
This scenario has two bottlenecks in a row, with traffic across both and across each.
`[bottleneck]` is the first link, from `left` to `right`; a `path` names the nodes that the data passes:

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
law    = "droptail"                # fixed; without this key, the law under test

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
