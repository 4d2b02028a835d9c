#include "model/communicator/recording_communicator.hpp"

#include <new>

#include <fmt/core.h>

namespace mgplan::model {
namespace {

class Recorded final : public Pending {
public:
    Recorded(WaitListener* listener, std::string_view group, std::int64_t number) : listener_(listener), group_(group), number_(number) {}
    void wait() override {
        if (listener_ != nullptr) listener_->on_wait(group_, number_);
    }

private:
    WaitListener* listener_;
    std::string_view group_;
    std::int64_t number_;
};

}  // namespace

void RecordingCommunicator::abort(const std::string& reason) noexcept {
    std::call_once(first_abort_, [&] {
        try {
            reason_ = reason;
        } catch (const std::bad_alloc&) {  // that it was aborted is known all the same
            reason_.clear();
        }
        aborted_.store(true, std::memory_order_release);
    });
}

void RecordingCommunicator::check(CollectiveKind kind) const {
    if (aborted_.load(std::memory_order_acquire))
        throw CommunicationError(fmt::format("rank {}, {} in group {}: {}", rank(), to_string(kind), group(), reason_));
}

std::unique_ptr<Pending> RecordingCommunicator::done(CollectiveKind kind) {
    check(kind);
    // Groups of one are not reported (Communicator), nor are their waits.
    return std::make_unique<Recorded>(size() > 1 ? waits_ : nullptr, group(), issued_++);
}

std::unique_ptr<Pending> RecordingCommunicator::do_all_reduce(const Tensor& /*tensor*/, Reduction /*reduction*/) {
    return done(CollectiveKind::all_reduce);
}

std::unique_ptr<Pending> RecordingCommunicator::do_all_gather(const Tensor& /*part*/, const Tensor& /*whole*/) {
    return done(CollectiveKind::all_gather);
}

std::unique_ptr<Pending> RecordingCommunicator::do_reduce_scatter(const Tensor& /*whole*/, const Tensor& /*part*/,
                                                                  Reduction /*reduction*/) {
    return done(CollectiveKind::reduce_scatter);
}

std::unique_ptr<Pending> RecordingCommunicator::do_all_gather_rows(const Tensor& /*part*/, const Tensor& /*whole*/,
                                                                   std::span<const std::int64_t> /*rows*/) {
    return done(CollectiveKind::all_gather);
}

std::unique_ptr<Pending> RecordingCommunicator::do_reduce_scatter_rows(const Tensor& /*whole*/, const Tensor& /*part*/,
                                                                       std::span<const std::int64_t> /*rows*/, Reduction /*reduction*/) {
    return done(CollectiveKind::reduce_scatter);
}

std::unique_ptr<Pending> RecordingCommunicator::do_all_to_all(const Tensor& /*from*/, const Tensor& /*to*/,
                                                              std::span<const std::int64_t> /*send_rows*/,
                                                              std::span<const std::int64_t> /*receive_rows*/) {
    return done(CollectiveKind::all_to_all);
}

std::unique_ptr<Pending> RecordingCommunicator::do_broadcast(const Tensor& /*tensor*/, int /*root*/) {
    return done(CollectiveKind::broadcast);
}

std::unique_ptr<Pending> RecordingCommunicator::do_send(const Tensor& /*tensor*/, int /*peer*/) {
    return done(CollectiveKind::send);
}

std::unique_ptr<Pending> RecordingCommunicator::do_receive(const Tensor& /*tensor*/, int /*peer*/) {
    return done(CollectiveKind::receive);
}

void RecordingCommunicator::do_barrier() {
    check(CollectiveKind::barrier);
}

World recording_world(int rank, int size, CollectiveListener* listener) {
    MGPLAN_ASSERT(size >= 1 && rank >= 0 && rank < size, "the rank is inside the world");
    return {
        rank, size, [rank, size, listener](const std::string& group, std::span<const std::int32_t> ranks) -> std::unique_ptr<Communicator> {
            auto made = std::make_unique<RecordingCommunicator>(group, static_cast<int>(ranks.size()), place_in_group(ranks, rank, size));
            made->set_listener(listener);
            return made;
        }};
}

}  // namespace mgplan::model
