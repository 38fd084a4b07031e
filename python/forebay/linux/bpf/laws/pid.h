/* PID of Ryu and Rump: crates/forebay-core/src/laws/pid.rs. */
#include "../queue_control.h"
