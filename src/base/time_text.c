/* time_text.c - points in time as RFC 3339 text and back (declared in str.h).
 *
 * The calendar is the proleptic Gregorian one, computed here: neither the process's time zone nor
 * its locale has a say. Times have no leap seconds, so a second of 60 is refused.
 *
 * INVARIANT  What weir__time_from_text accepts lies in the years 0001 to 9999, UTC, and
 * weir__time_to_text writes it as 27 bytes that are read back as the same time.
 */
#include "base/assert.h"
#include "base/str.h"

#include <inttypes.h>
#include <stdio.h>

enum {
    DAYS_PER_ERA = 146097, /* 400 years, after which the calendar repeats */
    DAYS_TO_1970 = 719468, /* from 1 March of the year 0, where an era starts */
    FRACTION_DIGITS_MAX = 9,
};
static const int64_t SECOND_US = 1000000;
static const int64_t DAY_US = INT64_C(86400) * 1000000;

typedef struct date {
    int64_t year;
    int month; /* 1 to 12 */
    int day;   /* 1 to 31 */
} date;

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b < 0 ? 1 : 0);
}

/* Years are counted from March, so that the leap day is the last day of a year and the lengths of
 * the months before it repeat in a pattern of 153 days per five months. */
static int64_t days_from_date(date d)
{
    const int64_t year = d.month <= 2 ? d.year - 1 : d.year;
    const int64_t era = floor_div(year, 400);
    const int64_t year_of_era = year - era * 400;
    const int64_t month = d.month <= 2 ? d.month + 9 : d.month - 3;
    const int64_t day_of_year = (153 * month + 2) / 5 + d.day - 1;
    const int64_t day_of_era =
        year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    return era * DAYS_PER_ERA + day_of_era - DAYS_TO_1970;
}

static date date_from_days(int64_t days_since_1970)
{
    const int64_t days = days_since_1970 + DAYS_TO_1970;
    const int64_t era = floor_div(days, DAYS_PER_ERA);
    const int64_t day_of_era = days - era * DAYS_PER_ERA;
    /* Take out the leap days that have passed: one in 4 years, none in 100, one in 400. */
    const int64_t year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    const int64_t day_of_year =
        day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    const int64_t month = (5 * day_of_year + 2) / 153;
    const int month_of_year = (int)(month < 10 ? month + 3 : month - 9);
    return (date){
        .year = era * 400 + year_of_era + (month_of_year <= 2 ? 1 : 0),
        .month = month_of_year,
        .day = (int)(day_of_year - (153 * month + 2) / 5 + 1),
    };
}

static int days_in_month(int64_t year, int month)
{
    static const int days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
    const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return month == 2 && leap ? 29 : days[month - 1];
}

void weir__time_to_text(int64_t time_us, char out[WEIR_TIME_TEXT_BYTES])
{
    const int64_t days = floor_div(time_us, DAY_US);
    const int64_t of_day = time_us % DAY_US + (time_us % DAY_US < 0 ? DAY_US : 0);
    const date d = date_from_days(days);
    const int seconds = (int)(of_day / SECOND_US);
    /* Years that four digits cannot hold get a sign and six, as in ISO 8601: such a time is wrong,
     * and whoever reads it shall see that. */
    const char *format = d.year >= 0 && d.year <= 9999
                             ? "%04" PRId64 "-%02d-%02dT%02d:%02d:%02d.%06dZ"
                             : "%+07" PRId64 "-%02d-%02dT%02d:%02d:%02d.%06dZ";
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral" /* both candidates stand right above */
    const int rc =
        snprintf(out, WEIR_TIME_TEXT_BYTES, format, d.year, d.month, d.day, seconds / 3600,
                 seconds / 60 % 60, seconds % 60, (int)(of_day % SECOND_US));
#pragma GCC diagnostic pop
    WEIR_ASSERT(rc > 0 && rc < WEIR_TIME_TEXT_BYTES);
}

/* What is left of a text that is read from the front. */
typedef struct reader {
    const char *at;
    const char *end;
} reader;

static bool read_number(reader *r, int digits, int *out)
{
    int value = 0;
    if (r->end - r->at < digits) {
        return false;
    }
    for (int i = 0; i < digits; i++) {
        const int digit = *r->at++ - '0';
        if (digit < 0 || digit > 9) {
            return false;
        }
        value = value * 10 + digit;
    }
    *out = value;
    return true;
}

static bool read_one_of(reader *r, const char *allowed)
{
    if (r->at == r->end || *r->at == '\0' || strchr(allowed, *r->at) == NULL) {
        return false;
    }
    r->at++;
    return true;
}

static bool read_date(reader *r, int64_t *days)
{
    int year, month, day;
    if (!read_number(r, 4, &year) || !read_one_of(r, "-") || !read_number(r, 2, &month) ||
        !read_one_of(r, "-") || !read_number(r, 2, &day)) {
        return false;
    }
    if (year < 1 || month < 1 || month > 12 || day < 1 || day > days_in_month(year, month)) {
        return false;
    }
    *days = days_from_date((date){ .year = year, .month = month, .day = day });
    return true;
}

/* HH:MM:SS and an optional fraction. */
static bool read_clock(reader *r, int64_t *us)
{
    int hour, minute, second;
    int64_t fraction_us = 0;

    if (!read_number(r, 2, &hour) || !read_one_of(r, ":") || !read_number(r, 2, &minute) ||
        !read_one_of(r, ":") || !read_number(r, 2, &second)) {
        return false;
    }
    if (hour > 23 || minute > 59 || second > 59) {
        return false;
    }
    if (read_one_of(r, ".")) {
        int64_t worth_us = SECOND_US / 10;
        int digits = 0;
        int digit;
        while (r->at < r->end && *r->at >= '0' && *r->at <= '9') {
            if (++digits > FRACTION_DIGITS_MAX || !read_number(r, 1, &digit)) {
                return false;
            }
            fraction_us += digit * worth_us;
            worth_us /= 10; /* 0 after the sixth digit: the rest is cut off */
        }
        if (digits == 0) {
            return false;
        }
    }
    *us = (hour * 3600 + minute * 60 + second) * SECOND_US + fraction_us;
    return true;
}

/* Z, +HH:MM or -HH:MM. */
static bool read_offset(reader *r, int64_t *us)
{
    int hour, minute;

    if (read_one_of(r, "Zz")) {
        *us = 0;
        return true;
    }
    const bool west = r->at < r->end && *r->at == '-';
    if (!read_one_of(r, "+-") || !read_number(r, 2, &hour) || !read_one_of(r, ":") ||
        !read_number(r, 2, &minute) || hour > 23 || minute > 59) {
        return false;
    }
    *us = (int64_t)(hour * 60 + minute) * 60 * SECOND_US * (west ? -1 : 1);
    return true;
}

bool weir__time_from_text(weir_str s, int64_t *out)
{
    int64_t days;
    int64_t clock_us = 0;
    int64_t offset_us = 0;

    if (s.len == 0) {
        return false;
    }
    reader r = { .at = s.ptr, .end = s.ptr + s.len };
    if (!read_date(&r, &days)) {
        return false;
    }
    if (r.at < r.end &&
        (!read_one_of(&r, "Tt ") || !read_clock(&r, &clock_us) || !read_offset(&r, &offset_us))) {
        return false;
    }
    if (r.at != r.end) {
        return false;
    }
    const int64_t time_us = days * DAY_US + clock_us - offset_us;
    /* An offset can push the first or the last day out of the years that text can show. */
    if (time_us < days_from_date((date){ .year = 1, .month = 1, .day = 1 }) * DAY_US ||
        time_us >= days_from_date((date){ .year = 10000, .month = 1, .day = 1 }) * DAY_US) {
        return false;
    }
    *out = time_us;
    return true;
}
