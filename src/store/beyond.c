/* beyond.c - positions beyond the log; see beyond.h. */
#include "store/beyond.h"

#include <stdio.h>

bool weir__mark_is_beyond(const store_mark *mark, const store_route_step *step, int64_t reread_to,
                          int64_t at, int64_t marked)
{
    return mark->last <= step->to && mark->first > reread_to &&
           (at >= mark->first || marked > step->to);
}

weir_str weir__beyond_text(char out[STORE_BEYOND_TEXT_BYTES_MAX], const store_mark *mark,
                           const store_route_step *step, int64_t at, int64_t marked)
{
    const int len = snprintf(out, STORE_BEYOND_TEXT_BYTES_MAX,
                             "position %lld is beyond what was routed of the log (%lld): a part of "
                             "the log was lost",
                             (long long)(at >= mark->first ? at : marked), (long long)step->from);
    return (weir_str){ .ptr = out, .len = len < 0 ? 0 : (size_t)len };
}
