/* RED of Floyd and Jacobson: crates/forebay-aqm/src/laws/red.rs. */
#include "../red.h"

#define LAW_CONFIG(FIELD) RED_CONFIG(FIELD)
#define LAW_STATE(FIELD) RED_STATE(FIELD)
LAW_STRUCTS
RED_OVERFLOW
RED_ARRIVAL
