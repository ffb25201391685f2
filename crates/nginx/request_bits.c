/*
 * Prints the places of bit fields of ngx_http_request_t as constants of Rust: the index of the
 * 32-bit word of the structure that a field is in, and its lowest bit there. The build script
 * compiles and runs this, since bindgen 0.72 gives other places where bit fields follow a shorter
 * member, as they do from nginx 1.29 on (rust-bindgen issue 3105).
 */

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include <stdio.h>
#include <string.h>

static union {
    ngx_http_request_t request;
    uint32_t words[sizeof(ngx_http_request_t) / 4];
} field;

static void print(const char *name)
{
    for (size_t word = 0; word < sizeof(field.words) / 4; word++) {
        if (field.words[word] != 0) {
            printf("pub(crate) const %s: Bit = Bit { word: %zu, bit: %d };\n", name, word,
                   __builtin_ctz(field.words[word]));
        }
    }
}

#define PRINT(name, member)             \
    memset(&field, 0, sizeof(field));   \
    field.request.member = 1;           \
    print(name);

int main(void)
{
    PRINT("ALLOW_RANGES", allow_ranges)
    PRINT("GZIP_VARY", gzip_vary)
    PRINT("HEADER_ONLY", header_only)
    PRINT("MAIN_FILTER_NEED_IN_MEMORY", main_filter_need_in_memory)
    return 0;
}
