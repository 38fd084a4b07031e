/* PI of Hollot, Misra, Towsley and Gong: crates/forebay-core/src/laws/pi.rs. */
#include "../queue_control.h"
