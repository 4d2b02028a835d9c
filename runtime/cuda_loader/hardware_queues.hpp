#pragma once
// How many hardware queues CUDA spreads the streams of a card over. Streams that share one hold each other up: what waits at its head is
// waited for by all behind it.

namespace mgplan::runtime {

inline constexpr const char* kQueuesVariable = "CUDA_DEVICE_MAX_CONNECTIONS";
/// The most that there are, for a rank's streams of its own groups; CUDA's default is 8.
inline constexpr const char* kHardwareQueues = "32";

}  // namespace mgplan::runtime
