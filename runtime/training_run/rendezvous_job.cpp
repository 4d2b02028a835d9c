#include "runtime/training_run/rendezvous_job.hpp"

#include <utility>

#include <fmt/core.h>

#include "plan/text/error_reason.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::runtime {

LastResort::LastResort(std::chrono::milliseconds patience, std::function<void(const std::string&)> on_stuck)
    : patience_(patience), on_stuck_(std::move(on_stuck)) {}

LastResort::~LastResort() {
    {
        const std::scoped_lock lock(mutex_);
        stopped_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
}

void LastResort::begin(const std::string& text) {
    const std::scoped_lock lock(mutex_);
    if (thread_.joinable() || stopped_) return;
    thread_ = std::thread([this, text] {
        std::unique_lock waiting(mutex_);
        if (!changed_.wait_for(waiting, patience_, [this] { return stopped_; }) && on_stuck_) on_stuck_(text);
    });
}

RendezvousJob::RendezvousJob(const RendezvousOptions& meeting, std::function<void(const std::string&)> on_stuck)
    : last_resort_(meeting.patience, std::move(on_stuck)), rendezvous_(meeting, [this, rank = meeting.rank](const std::string& reason) {
          last_resort_.begin(fmt::format("rank {}, {}: ended, because {}; it does not stop by itself", rank, rendezvous_.where(), reason));
      }) {}

GatherTexts RendezvousJob::gather() {
    return [this, turn = 0](const std::string& mine) mutable {
        const auto key = [&](int rank) { return fmt::format("text {} of rank {}", turn, rank); };
        std::vector<std::string> texts;
        if (rendezvous_.rank() != 0) rendezvous_.set(key(rendezvous_.rank()), mine);
        for (int rank = 0; rendezvous_.rank() == 0 && rank < rendezvous_.size(); ++rank)
            texts.push_back(rank == 0 ? mine : rendezvous_.get(key(rank)));
        ++turn;
        return texts;
    };
}

std::unique_ptr<NcclWorldInterface> RendezvousJob::connect(const RankDevices& devices, RankDevice& device,
                                                           std::chrono::milliseconds deadline) {
    // NCCL's watchdog polls 20 times a second; the job's folder may be on a file system that thousands of ranks share.
    const NcclOptions how{deadline, [this, next = std::chrono::steady_clock::time_point(), reason = std::string()]() mutable {
                              if (const auto now = std::chrono::steady_clock::now(); now >= next) {
                                  next = now + std::chrono::seconds{1};
                                  reason = rendezvous_.reason();
                              }
                              return reason;
                          }};
    return devices.connect(
        device, rendezvous_.rank(), rendezvous_.size(),
        [this](const std::vector<std::byte>& mine) { return rendezvous_.from_rank_0(mine); }, how);
}

void RendezvousJob::failed(const std::exception& error) {
    if (!said_.empty()) return;
    const int rank = rendezvous_.rank();
    const std::string reason = rendezvous_.reason();
    said_ = reason.empty() ? fmt::format("rank {} failed: {}; {}", rank, reason_of(error), rendezvous_.where())
                           : fmt::format("rank {}, {}: ended, because {}", rank, rendezvous_.where(), reason);
    last_resort_.begin(said_ + "; it does not stop by itself");
    if (reason.empty()) rendezvous_.abort(said_, dynamic_cast<const ConfigError*>(&error) != nullptr ? kAbortBadInput : kAbortFailed);
}

void RendezvousJob::run(const std::function<void()>& work) {
    try {
        work();
    } catch (const ConfigError& error) {
        failed(error);
        throw;
    } catch (const std::exception& error) {
        failed(error);
        if (rendezvous_.code() == kAbortBadInput) throw ConfigError(said_);  // of another rank
        throw RunError(said_);
    }
}

}  // namespace mgplan::runtime
