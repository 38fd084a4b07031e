/* PID of the average queue of Bigdeli, Haeri and Pakravan: crates/forebay-core/src/laws/pid_avg.rs. */
#include "../average_control.h"
