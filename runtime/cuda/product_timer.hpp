#pragma once
// Measures one piece of a stream's work by the card's own clock.

#include <cuda_runtime_api.h>

#include <array>
#include <functional>
#include <optional>

namespace mgplan::runtime::cuda {

/// One thread; waits for the stream. Takes none of the card's memory.
class ProductTimer {
public:
    /// The stream must outlive it, and is not captured where work is measured.
    explicit ProductTimer(cudaStream_t stream);
    ~ProductTimer();
    ProductTimer(const ProductTimer&) = delete;
    ProductTimer& operator=(const ProductTimer&) = delete;

    /// `issue` puts the work on the stream and returns true if it could. Returns seconds of the shorter of two runs, after one that loads
    /// kernels and hides the cost of issuing; nothing as soon as one could not be issued. Throws RunError where the card fails.
    [[nodiscard]] std::optional<double> measure(const std::function<bool()>& issue);

private:
    static constexpr std::size_t kRuns = 2;
    cudaStream_t stream_;
    std::array<cudaEvent_t, kRuns + 1> events_{};
};

}  // namespace mgplan::runtime::cuda
