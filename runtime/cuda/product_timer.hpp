#pragma once
// How long one piece of a stream's work takes, by the card's own clock.

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

    /// `issue` puts the work on the stream and returns whether it could. Seconds of the shorter of two runs behind one that loads kernels
    /// and hides from the card what issuing costs; nothing where one could not be issued, at once. Throws RunError where the card fails.
    [[nodiscard]] std::optional<double> measure(const std::function<bool()>& issue);

private:
    static constexpr std::size_t kRuns = 2;
    cudaStream_t stream_;
    std::array<cudaEvent_t, kRuns + 1> events_{};
};

}  // namespace mgplan::runtime::cuda
