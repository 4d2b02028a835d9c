#pragma once
// Reason why a rank's world was ended, for transports whose ranks are processes.

#include <atomic>
#include <mutex>
#include <string>

#include <fmt/core.h>

#include "model/communicator/communicator.hpp"

namespace mgplan::runtime {

/// Empty until the world is ended; the first reason stays. Any thread.
class AbortReason {
public:
    /// Returns false if there was a reason already. Never throws: without memory for the text the world is ended without it.
    bool set(const std::string& reason) noexcept {
        const std::scoped_lock lock(mutex_);
        if (given_.load(std::memory_order_relaxed)) return false;
        try {
            text_ = reason;
        } catch (...) {  // no memory for the words
        }
        given_.store(true, std::memory_order_release);
        return true;
    }

    [[nodiscard]] bool given() const noexcept { return given_.load(std::memory_order_acquire); }

    [[nodiscard]] std::string text() const {
        const std::scoped_lock lock(mutex_);
        return text_;
    }

    /// Throws CommunicationError once there is a reason. `what`: "all_reduce in group tp (ranks 0, 1)".
    void check(int rank, const std::string& what) const {
        if (given()) throw model::CommunicationError(fmt::format("rank {}: {} was aborted: {}", rank, what, text()));
    }

private:
    std::atomic<bool> given_ = false;
    mutable std::mutex mutex_;  // of text_
    std::string text_;
};

}  // namespace mgplan::runtime
