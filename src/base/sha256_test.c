/* sha256_test.c - the published examples, and that how the input is cut up does not matter. */
#include "base/sha256.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void hash_hex(const void *ptr, size_t len, char out[65])
{
    weir_sha256 h;
    uint8_t digest[WEIR_SHA256_BYTES];
    weir__sha256_init(&h);
    weir__sha256_add(&h, ptr, len);
    weir__sha256_end(&h, digest);
    for (size_t i = 0; i < sizeof digest; i++) {
        (void)snprintf(out + 2 * i, 3, "%02x", digest[i]);
    }
}

static void examples_of_fips_180_hash_as_published(void **state)
{
    (void)state;
    char hex[65];
    hash_hex("", 0, hex);
    assert_string_equal(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    hash_hex("abc", 3, hex);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    const char *two_blocks = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    hash_hex(two_blocks, strlen(two_blocks), hex);
    assert_string_equal(hex, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    static char million[1000000];
    memset(million, 'a', sizeof million);
    hash_hex(million, sizeof million, hex);
    assert_string_equal(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

/* Around 55, 56 and 64 bytes the padding needs one block or two. */
static void every_cut_of_every_short_input_hashes_as_the_whole(void **state)
{
    (void)state;
    uint8_t input[200];
    for (size_t i = 0; i < sizeof input; i++) {
        input[i] = (uint8_t)(i * 7 + 1);
    }
    for (size_t len = 0; len <= sizeof input; len++) {
        weir_sha256 whole;
        uint8_t expected[WEIR_SHA256_BYTES];
        weir__sha256_init(&whole);
        weir__sha256_add(&whole, input, len);
        weir__sha256_end(&whole, expected);
        for (size_t cut = 0; cut <= len; cut++) {
            weir_sha256 parts;
            uint8_t digest[WEIR_SHA256_BYTES];
            weir__sha256_init(&parts);
            weir__sha256_add(&parts, input, cut);
            weir__sha256_add(&parts, input + cut, len - cut);
            weir__sha256_end(&parts, digest);
            assert_memory_equal(digest, expected, sizeof digest);
        }
    }
}

/* Digests computed with coreutils' sha256sum over that many bytes 'x'. */
static void lengths_around_the_padding_limit_hash_as_sha256sum_says(void **state)
{
    (void)state;
    static const struct {
        size_t len;
        const char *hex;
    } cases[] = {
        { 1, "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881" },
        { 54, "45f316e10b2c99abf374b22bda893cf3300d77263f1e272349ed414680522952" },
        { 55, "d5e285683cd4efc02d021a5c62014694958901005d6f71e89e0989fac77e4072" },
        { 56, "04c26261370ee7541549d16dee320c723e3fd14671e66a099afe0a377c16888e" },
        { 57, "ae14a2563ccf969d99aca69ce6bb74981f734bbf9f655f73b8f06db68cab5217" },
        { 63, "75220b47218278e656f2013bb8f0c455a25eaf01e86c64924e9d48d89776d6f2" },
        { 64, "7ce100971f64e7001e8fe5a51973ecdfe1ced42befe7ee8d5fd6219506b5393c" },
        { 65, "9537c5fdf120482f7d58d25e9ed583f52c02b4e304ea814db1633ad565aed7e9" },
        { 119, "000b48d4edf0fa7bee3c6236ecd2785baa5db4eeb8bb54341b029e0d9fa5fb0c" },
        { 120, "13f05a0b594787f5ecd315edc96141bd3243203d1b7d4f0836f37308b276ba98" },
        { 128, "24da1b81d0b16df6428eee73c69fcb2a93c76bc6df706f0c6670fe6bfe800464" },
    };
    char input[128];
    memset(input, 'x', sizeof input);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char hex[65];
        hash_hex(input, cases[i].len, hex);
        assert_string_equal(hex, cases[i].hex);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(examples_of_fips_180_hash_as_published),
        cmocka_unit_test(every_cut_of_every_short_input_hashes_as_the_whole),
        cmocka_unit_test(lengths_around_the_padding_limit_hash_as_sha256sum_says),
    };
    return cmocka_run_group_tests_name("sha256", tests, NULL, NULL);
}
