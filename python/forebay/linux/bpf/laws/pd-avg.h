/* PD of the average queue of Bigdeli, Haeri and Pakravan: crates/forebay-aqm/src/laws/pid_avg.rs. */
#include "../average_control.h"
