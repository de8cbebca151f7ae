/* json_oracle.c - the JSON check as a filter, for json_oracle_test.py.
 *
 * Reads texts, each as a length (four bytes, little-endian) and that many bytes. Answers each with
 * 'A' and the compact text, or 'R' and the message, both with a length in front in the same way.
 */
#include "base/json.h"

#include <endian.h>
#include <stdio.h>
#include <string.h>

static bool answer(char verdict, weir_str text)
{
    const uint32_t len = htole32((uint32_t)text.len);
    return fwrite(&verdict, 1, 1, stdout) == 1 && fwrite(&len, sizeof len, 1, stdout) == 1 &&
           (text.len == 0 || fwrite(text.ptr, text.len, 1, stdout) == 1);
}

int main(void)
{
    uint32_t len;
    bool working = true;

    while (working && fread(&len, sizeof len, 1, stdin) == 1) {
        len = le32toh(len);
        weir_buffer out = { 0 };
        weir_error err;
        char *text = weir__malloc(len); /* exactly so much: a sanitizer sees one byte too many */
        working = text != NULL && fread(text, 1, len, stdin) == len;
        if (working) {
            if (weir__json_compact((weir_str){ text, len }, &out, NULL, &err) == WEIR_OK) {
                working = answer('A', (weir_str){ out.ptr, out.len });
            } else {
                working = answer('R', (weir_str){ err.message, strlen(err.message) });
            }
        }
        weir__buffer_free(&out);
        weir__free(text);
    }
    return working && ferror(stdin) == 0 && fflush(stdout) == 0 ? 0 : 1;
}
