/* PI of Hollot, Misra, Towsley and Gong: crates/forebay-aqm/src/laws/pi.rs. */
#include "../queue_control.h"
