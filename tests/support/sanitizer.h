// Which sanitizer a file is compiled with: gcc tells by macros, clang by features.
#pragma once

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LEAF_ADDRESS_SANITIZER 1
#endif
#if __has_feature(thread_sanitizer)
#define LEAF_THREAD_SANITIZER 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define LEAF_ADDRESS_SANITIZER 1
#endif
#if defined(__SANITIZE_THREAD__)
#define LEAF_THREAD_SANITIZER 1
#endif
