/* PID of Ryu and Rump: crates/forebay-aqm/src/laws/pid.rs. */
#include "../queue_control.h"
