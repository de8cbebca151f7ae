/* time_fuzz.c - any bytes as a time, and any number as one.
 *
 *   a text that is accepted:  lies in the years 0001 to 9999; written, it has 27 bytes and is read
 *                             back as the same time
 *   any number:               is written within its bounds, and read back if its year has four
 *                             digits and is not 0000
 */
#include "fuzz.h"

#include "base/assert.h"
#include "base/str.h"

static void check_number(int64_t time_us)
{
    char text[WEIR_TIME_TEXT_BYTES];
    int64_t back = 0;

    weir__time_to_text(time_us, text);
    const size_t len = strlen(text);
    WEIR_ASSERT(len == 27 || len == 30);
    const bool readable = len == 27 && memcmp(text, "0000", 4) != 0;
    WEIR_ASSERT(weir__time_from_text(weir__str(text), &back) == readable);
    WEIR_ASSERT(!readable || back == time_us);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const weir_str text = { .ptr = (const char *)data, .len = size };
    int64_t time_us;

    if (weir__time_from_text(text, &time_us)) {
        char written[WEIR_TIME_TEXT_BYTES];
        weir__time_to_text(time_us, written);
        WEIR_ASSERT(strlen(written) == 27 && memcmp(written, "0000", 4) != 0);
        check_number(time_us);
    }
    if (size >= sizeof time_us) {
        memcpy(&time_us, data, sizeof time_us);
        check_number(time_us);
        /* Most numbers are far outside the calendar; fold this one into it as well. */
        check_number(time_us % INT64_C(253402300800000000));
    }
    return 0;
}
