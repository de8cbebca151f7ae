/* claim_words.c - errors of claims, in the words of weir.h.
 *
 * src/claim/ speaks of the flags of `weir claim`. A program that calls weir_claim_rows has no flags
 * but fields, so the one becomes the other where an error leaves the library.
 */
#include "api/api.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *flag, *field;
} words[] = {
    { "--attempts-column", "attempts_column" },
    { "--at-column", "at_column" },
    { "--by-column", "by_column" },
    { "--fence-column", "fence_column" },
    { "--lease-column", "lease_column" },
    { "--by", "by" },
    { "--fence", "fence_column" },
    { "--hold", "WEIR_CLAIM_HOLD" },
    { "--lease", "lease_us" },
    { "--limit", "limit" },
    { "--max-per", "max_per" },
    { "--order", "order" },
    { "--param", "params" },
    { "--set-sql", "set" },
    { "--set", "set" },
    { "--wait", "wait_us" },
    { "--where", "where" },
};

/* The flag at `text`, as a whole word; NULL: none. */
static const char *field_at(const char *text, size_t *flag_len)
{
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        const size_t len = strlen(words[i].flag);
        if (strncmp(text, words[i].flag, len) == 0 && text[len] != '-' &&
            (text[len] < 'a' || text[len] > 'z')) {
            *flag_len = len;
            return words[i].field;
        }
    }
    return NULL;
}

static void text_translate(char *text, size_t bytes)
{
    char out[sizeof((weir_error *)NULL)->message] = "";
    size_t n = 0, flag_len = 0;

    for (const char *at = text; *at != '\0' && n + 1 < sizeof out;) {
        /* A column may have such a name; then it is in quotes. */
        const char *field = at > text && at[-1] == '"' ? NULL : field_at(at, &flag_len);
        if (field == NULL) {
            out[n++] = *at++;
            continue;
        }
        const int len = snprintf(out + n, sizeof out - n, "%s", field);
        n += len < 0 ? 0 : (size_t)len < sizeof out - n ? (size_t)len : sizeof out - n - 1;
        at += flag_len;
    }
    n = n < bytes ? n : bytes - 1;
    memcpy(text, out, n);
    text[n] = '\0';
}

weir_status weir__claim_words(weir_status status, weir_error *err)
{
    if (status != WEIR_OK && err != NULL) {
        text_translate(err->message, sizeof err->message);
        text_translate(err->detail, sizeof err->detail);
    }
    return status;
}
