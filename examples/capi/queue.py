"""The library for C, called from Python by ctypes: a link of 10 Mbit/s under any law.

python3 queue.py /usr/local/lib/libforebay.so pie target=15ms
"""

import ctypes
import random
import sys
from ctypes import c_bool, c_char_p, c_double, c_int, c_size_t, c_uint8, c_uint32, c_uint64

OK, NEVER = 1, 2**64 - 1
ECT0 = 2


class Settings(ctypes.Structure):
    _fields_ = [
        ("law", c_char_p),
        ("params", ctypes.POINTER(c_char_p)),
        ("queue", c_char_p),
        ("rate", c_char_p),
        ("buffer", c_char_p),
        ("packet", c_char_p),
        ("seed", c_uint64),
        ("ecn", c_bool),
    ]


class Packet(ctypes.Structure):
    _fields_ = [
        *((name, c_uint64) for name in ("handle", "flow", "from_host", "to_host")),
        ("bytes", c_uint32),
        ("ecn", c_uint8),
        ("dscp", c_uint8),
        ("not_tcp", c_bool),
    ]


class Departure(ctypes.Structure):
    _fields_ = [
        ("handle", c_uint64),
        ("sojourn_ns", c_uint64),
        ("bytes", c_uint32),
        ("ecn", c_uint8),
        ("class_number", c_uint8),
        ("marked", c_bool),
    ]


class Loss(ctypes.Structure):
    _fields_ = [("handle", c_uint64), ("time_ns", c_uint64), ("bytes", c_uint32), ("why", c_uint8)]


path, law, *params = sys.argv[1:]
library = ctypes.CDLL(path)
library.forebay_new.restype = ctypes.c_void_p
library.forebay_next_timeout.restype = c_uint64
made_of = [ctypes.c_void_p]
library.forebay_next_timeout.argtypes = library.forebay_free.argtypes = made_of
library.forebay_handle_timeout.argtypes = [*made_of, c_uint64]
library.forebay_enqueue.argtypes = [*made_of, c_uint64, ctypes.POINTER(Packet)]
library.forebay_dequeue.argtypes = [
    *(*made_of, c_uint64, ctypes.POINTER(Departure), ctypes.POINTER(c_uint64))
]
library.forebay_next_lost.argtypes = [*made_of, ctypes.POINTER(Loss)]
library.forebay_probe.argtypes = [*made_of, c_char_p, ctypes.POINTER(c_double)]
library.forebay_new.argtypes = [ctypes.POINTER(Settings), c_char_p, c_size_t]
library.forebay_enqueue.restype = library.forebay_dequeue.restype = c_int

texts = [text.encode() for text in params]
settings = Settings(
    law=law.encode(),
    params=(c_char_p * (len(texts) + 1))(*texts, None),
    rate=b"10Mbit/s",
    buffer=b"800p",
    packet=b"1000B",
    seed=1,
    ecn=True,
)
error = ctypes.create_string_buffer(300)
queue = library.forebay_new(settings, error, len(error))
if not queue:
    sys.exit(error.value.decode())

END_NS, SEND_NS = 10_000_000_000, 800_000
rng = random.Random(1)
arrival, free_at, handle = 0, NEVER, 0
sent, marked = 0, 0
departure, wait_until = Departure(), c_uint64()
while True:
    tick = library.forebay_next_timeout(queue)
    now = min(tick, free_at, arrival)
    if now > END_NS:
        break
    if now == tick:
        library.forebay_handle_timeout(queue, now)
        continue
    if now == arrival:
        flow = handle % 2
        packet = Packet(handle=handle, flow=flow, bytes=1000, ecn=ECT0 if flow else 0)
        library.forebay_enqueue(queue, now, packet)
        handle += 1
        arrival += int(rng.expovariate(1.2) * SEND_NS)
        if free_at != NEVER:
            continue
    wait_until.value = NEVER
    if library.forebay_dequeue(queue, now, departure, wait_until) == OK:
        sent, marked, free_at = sent + 1, marked + departure.marked, now + SEND_NS
    else:
        free_at = wait_until.value

loss, lost, p = Loss(), 0, c_double()
while library.forebay_next_lost(queue, loss) == OK:
    lost += 1
library.forebay_probe(queue, b"p", p)
print(f"sent {sent}, marked {marked}, lost {lost} packets; p = {p.value:.4f}")
library.forebay_free(queue)
