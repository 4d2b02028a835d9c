#pragma once
// Macros for the sanitizers that the code is compiled with: GCC defines macros, clang before version 20 has __has_feature.

#if defined(__SANITIZE_ADDRESS__)
#define MGPLAN_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MGPLAN_ADDRESS_SANITIZER 1
#endif
#endif

#if defined(__SANITIZE_THREAD__)
#define MGPLAN_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define MGPLAN_THREAD_SANITIZER 1
#endif
#endif
