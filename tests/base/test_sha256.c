/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sha256.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void expect_digest(const char *text, size_t n, const char *hex)
{
    uint8_t digest[SHA256_BYTES];
    char shown[2 * SHA256_BYTES + 1];
    sha256(text, n, digest);
    for (size_t i = 0; i < SHA256_BYTES; i++) sprintf(shown + 2 * i, "%02x", digest[i]);
    cr_expect_str_eq(shown, hex, "of %zu bytes", n);
}

/* The standard's examples, and lengths around the ends of blocks as sha256sum has them. */
Test(sha256, known_digests)
{
    static const char two_blocks[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    char *many = malloc(1000000);
    cr_assert_not_null(many);
    memset(many, 'a', 1000000);
    expect_digest("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    expect_digest("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    expect_digest(two_blocks, 56, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    expect_digest(many, 1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    expect_digest(many, 55, "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
    expect_digest(many, 63, "7d3e74a05d7db15bce4ad9ec0658ea98e3f06eeecf16b4c6fff2da457ddc2f34");
    expect_digest(many, 64, "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
    free(many);
}

Test(sha256, bytes_are_compared_whole)
{
    uint8_t a[SHA256_BYTES] = {0}, b[SHA256_BYTES] = {0};
    cr_expect(bytes_equal_constant_time(a, b, sizeof a));
    for (size_t i = 0; i < sizeof a; i++) {
        b[i] = 0x80;
        cr_expect_not(bytes_equal_constant_time(a, b, sizeof a), "byte %zu", i);
        b[i] = 0;
    }
}
