#include "runtime/comm/nccl/nccl_world.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "runtime/comm/nccl/nccl_communicator.hpp"
#include "runtime/comm/nccl/nccl_state.hpp"
#include "runtime/cuda/check.hpp"

namespace mgplan::runtime::cuda {

using model::CommunicationError;
using std::chrono::steady_clock;

NcclTicket::NcclTicket() {
    MGPLAN_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
}

NcclTicket::~NcclTicket() {
    if (event != nullptr) static_cast<void>(cudaEventDestroy(event));
}

NcclState::NcclState(CudaDevice& device, int rank, NcclOptions options) : device_(device), rank_(rank), options_(options) {
    MGPLAN_CUDA(cudaEventCreateWithFlags(&ready_, cudaEventDisableTiming));
    watchdog_ = std::thread([this] { watch_over(); });
}

NcclState::~NcclState() {
    try {
        flush();
    } catch (...) {  // whoever waited for it has heard of it
    }
    {
        const std::scoped_lock lock(mutex_);
        stopping_ = true;
    }
    stop_.notify_all();
    watchdog_.join();
    running_.clear();
    for (const auto& group : groups_) {
        if (group->communicator != nullptr) {
            // Finalize is collective; a world that was left early would wait in it for ever, so partners are not waited for.
            static_cast<void>(cudaStreamSynchronize(group->stream));
            static_cast<void>(ncclCommAbort(group->communicator));
        }
        if (group->stream != nullptr) static_cast<void>(cudaStreamDestroy(group->stream));
    }
    if (ready_ != nullptr) static_cast<void>(cudaEventDestroy(ready_));
}

void NcclState::settle(ncclComm_t communicator, ncclResult_t result, const std::string& what) {
    const auto until = steady_clock::now() + options_.deadline;
    while (result == ncclInProgress) {
        if (communicator == nullptr) break;
        // The watchdog has taken the communicator away: it must not be asked any more.
        if (aborted_.load(std::memory_order_acquire)) {
            const std::scoped_lock lock(mutex_);
            throw CommunicationError(fmt::format("rank {}: {} was aborted: {}", rank_, what, reason_));
        }
        if (const auto error = ncclCommGetAsyncError(communicator, &result); error != ncclSuccess) result = error;
        if (result != ncclInProgress) break;
        if (steady_clock::now() > until) {
            const std::string reason = fmt::format("rank {}: {} took longer than {} ms", rank_, what, options_.deadline.count());
            abort(reason);
            throw CommunicationError(reason);
        }
        std::this_thread::sleep_for(std::chrono::microseconds{50});
    }
    if (result != ncclSuccess) {
        const std::string reason = fmt::format("rank {}: {} failed: {} ({})", rank_, what, ncclGetErrorString(result),
                                               communicator != nullptr ? ncclGetLastError(communicator) : "no communicator");
        abort(reason);
        throw CommunicationError(reason);
    }
}

std::shared_ptr<NcclGroup> NcclState::adopt(std::string text, ncclComm_t communicator) {
    auto group = std::make_shared<NcclGroup>();
    group->text = std::move(text);
    group->communicator = communicator;
    MGPLAN_CUDA(cudaStreamCreateWithFlags(&group->stream, cudaStreamNonBlocking));
    const std::scoped_lock lock(mutex_);
    groups_.push_back(group);
    return group;
}

void NcclState::behind_the_device(NcclGroup& group) {
    MGPLAN_CUDA(cudaEventRecord(ready_, device_.stream()));
    MGPLAN_CUDA(cudaStreamWaitEvent(group.stream, ready_, 0));
}

void NcclState::watch(const std::shared_ptr<NcclTicket>& ticket, NcclGroup& group) {
    MGPLAN_CUDA(cudaEventRecord(ticket->event, group.stream));
    ticket->issued = true;
    ticket->since = steady_clock::now();
    const std::scoped_lock lock(mutex_);
    running_.push_back(ticket);
}

std::shared_ptr<NcclTicket> NcclState::issue(NcclGroup& group, model::CollectiveKind kind, const std::function<ncclResult_t()>& call) {
    check(kind, group.text);
    auto ticket = std::make_shared<NcclTicket>();
    ticket->kind = kind;
    ticket->group = group.text;
    behind_the_device(group);
    settle(group.communicator, call(), fmt::format("{} in group {}", to_string(kind), group.text));
    watch(ticket, group);
    return ticket;
}

std::shared_ptr<NcclTicket> NcclState::hold(std::shared_ptr<NcclGroup> group, model::CollectiveKind kind,
                                            std::function<ncclResult_t()> call) {
    check(kind, group->text);
    auto ticket = std::make_shared<NcclTicket>();
    ticket->kind = kind;
    ticket->group = group->text;
    behind_the_device(*group);
    held_.push_back({std::move(group), ticket, std::move(call)});
    std::ptrdiff_t sends = 0;
    for (const Held& each : held_) sends += each.ticket->kind == model::CollectiveKind::send ? 1 : -1;
    if (sends == 0) flush();
    return ticket;
}

void NcclState::flush() {
    if (held_.empty()) return;
    const std::vector<Held> held = std::move(held_);
    held_.clear();
    ncclResult_t first_error = ncclGroupStart();
    for (const Held& each : held) {
        if (first_error == ncclSuccess || first_error == ncclInProgress) first_error = each.call();
    }
    const ncclResult_t ended = ncclGroupEnd();
    const ncclResult_t result = first_error == ncclSuccess || first_error == ncclInProgress ? ended : first_error;
    for (const Held& each : held) {
        settle(each.group->communicator, result, fmt::format("{} in group {}", to_string(each.ticket->kind), each.group->text));
        watch(each.ticket, *each.group);
    }
}

void NcclState::wait(NcclTicket& ticket) {
    if (!ticket.issued) flush();
    check(ticket.kind, ticket.group);
    MGPLAN_CUDA(cudaStreamWaitEvent(device_.stream(), ticket.event, 0));
}

void NcclState::check(model::CollectiveKind kind, const std::string& group) {
    if (!aborted_.load(std::memory_order_acquire)) return;
    const std::scoped_lock lock(mutex_);
    throw CommunicationError(fmt::format("rank {}: {} in group {} was aborted: {}", rank_, to_string(kind), group, reason_));
}

void NcclState::abort(const std::string& reason) noexcept {
    const std::scoped_lock lock(mutex_);
    if (aborted_.load(std::memory_order_relaxed)) return;
    try {
        reason_ = reason;
    } catch (...) {  // no memory for the words
    }
    aborted_.store(true, std::memory_order_release);
    for (const auto& group : groups_) {
        if (group->communicator != nullptr) static_cast<void>(ncclCommAbort(std::exchange(group->communicator, nullptr)));
    }
}

/// Why the world must end; empty where all is well. Drops what is done.
std::string NcclState::trouble() {
    const std::scoped_lock lock(mutex_);
    if (aborted_.load(std::memory_order_relaxed)) return {};
    for (const auto& group : groups_) {
        ncclResult_t result = ncclSuccess;
        if (group->communicator == nullptr || ncclCommGetAsyncError(group->communicator, &result) != ncclSuccess) continue;
        if (result != ncclSuccess && result != ncclInProgress) {
            return fmt::format("rank {}: group {} failed: {} ({})", rank_, group->text, ncclGetErrorString(result),
                               ncclGetLastError(group->communicator));
        }
    }
    std::erase_if(running_, [](const auto& ticket) { return cudaEventQuery(ticket->event) == cudaSuccess; });
    const auto now = steady_clock::now();
    for (const auto& ticket : running_) {
        if (now - ticket->since > options_.deadline) {
            return fmt::format("rank {}: {} in group {} was not done after {} ms; a partner is dead or hangs", rank_,
                               to_string(ticket->kind), ticket->group, options_.deadline.count());
        }
    }
    return {};
}

void NcclState::watch_over() {
    static_cast<void>(cudaSetDevice(device_.ordinal()));
    name_rank_of_this_thread(rank_);
    for (;;) {
        {
            std::unique_lock lock(mutex_);
            stop_.wait_for(lock, std::chrono::milliseconds{50}, [this] { return stopping_; });
            if (stopping_) return;
        }
        try {
            if (const std::string why = trouble(); !why.empty()) abort(why);
        } catch (const std::exception& error) {
            abort(error.what());
        }
    }
}

namespace {

class World final : public NcclWorldInterface {
public:
    World(CudaDevice& device, int rank, int size, const Bootstrap& bootstrap, const NcclOptions& options)
        : size_(size), state_(std::make_shared<NcclState>(device, rank, options)) {
        if (size == 1) return;
        std::vector<std::byte> bytes(sizeof(ncclUniqueId));
        if (rank == 0) {
            ncclUniqueId id;
            state_->settle(nullptr, ncclGetUniqueId(&id), "making NCCL's id");
            std::memcpy(bytes.data(), &id, sizeof(id));
        }
        bytes = bootstrap(bytes);
        if (bytes.size() != sizeof(ncclUniqueId)) {
            throw RunError(fmt::format("rank {} got {} bytes for NCCL's id of {}", rank, bytes.size(), sizeof(ncclUniqueId)));
        }
        ncclUniqueId id;
        std::memcpy(&id, bytes.data(), sizeof(id));
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        ncclComm_t communicator = nullptr;
        const ncclResult_t result = ncclCommInitRankConfig(&communicator, size, id, rank, &config);
        world_ = state_->adopt("world", communicator);
        state_->settle(communicator, result, "joining the world");
    }

    model::World view() override {
        return {state_->rank(), size_,
                [this](const std::string& group, std::span<const std::int32_t> ranks) { return join(group, ranks); }};
    }

    void abort(const std::string& reason) noexcept override { state_->abort(reason); }

private:
    std::unique_ptr<model::Communicator> join(const std::string& name, std::span<const std::int32_t> ranks) {
        const int place = model::place_in_group(ranks, state_->rank(), size_);
        if (size_ == 1) return make_nccl_communicator(state_, nullptr, name, 1, 0);
        const bool alone = ranks.size() == 1;
        const std::string text = model::group_text(name, ranks);
        const int color = alone ? NCCL_SPLIT_NOCOLOR : *std::min_element(ranks.begin(), ranks.end());
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        config.splitShare = 0;  // groups that overlap run at the same time
        ncclComm_t communicator = nullptr;
        const ncclResult_t result = ncclCommSplit(world_->communicator, color, place, &communicator, &config);
        state_->settle(world_->communicator, result, "splitting off group " + text);
        if (alone) return make_nccl_communicator(state_, nullptr, name, 1, 0);
        auto made = state_->adopt(text, communicator);
        state_->settle(communicator, ncclInProgress, "joining group " + text);
        return make_nccl_communicator(state_, std::move(made), name, static_cast<int>(ranks.size()), place);
    }

    int size_;
    std::shared_ptr<NcclState> state_;
    std::shared_ptr<NcclGroup> world_;
};

}  // namespace

std::unique_ptr<NcclWorldInterface> make_nccl_world(CudaDevice& device, int rank, int size, const Bootstrap& bootstrap,
                                                    const NcclOptions& options) {
    MGPLAN_ASSERT(size >= 1 && rank >= 0 && rank < size, "the rank is inside the world");
    return std::make_unique<World>(device, rank, size, bootstrap, options);
}

std::string nccl_version() {
    int version = 0;  // 22809 is 2.28.9
    if (ncclGetVersion(&version) != ncclSuccess) return {};
    return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace mgplan::runtime::cuda
