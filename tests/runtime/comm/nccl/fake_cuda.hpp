#pragma once
// What the fake device needs of the fake CUDA. The device's own stream, nullptr, is the caller: what it waits for, the caller waits
// for. Graphs run on a thread, so that launching one returns at once as on a GPU.

#include <cstdint>
#include <functional>

namespace mgplan::tests {

/// Work of the device's stream: done now, behind graphs that still run; inside a capture written down instead.
void do_on_device(std::function<void()> work);
/// Waits for the graphs that were launched.
void wait_for_graphs();
/// Whether this thread captures the device's stream.
[[nodiscard]] bool captures();
/// Ends the program: a GPU would refuse this, or the fake knows no better.
[[noreturn]] void refuse(const char* what);
/// What graphs take of the card's memory, which this process alone uses: 50,000 bytes for each of their nodes.
[[nodiscard]] std::int64_t bytes_of_graphs();
/// Operations of NCCL's that went into captures.
[[nodiscard]] std::int64_t captured_operations();

}  // namespace mgplan::tests
