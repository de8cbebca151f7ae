/* base64.h - bytes as text (RFC 4648, with padding, on one line). */
#ifndef WEIR_BASE_BASE64_H
#define WEIR_BASE_BASE64_H

#include "base/memory.h"
#include "weir.h"

/* Appends `bytes` to `out`. false: out of memory. */
bool weir__base64_add(weir_buffer *out, weir_str bytes);

#endif
