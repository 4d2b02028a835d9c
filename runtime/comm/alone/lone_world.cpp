#include "runtime/comm/alone/lone_world.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <functional>
#include <random>
#include <utility>

#include <fmt/core.h>

#include "model/device/device.hpp"
#include "plan/text/errors.hpp"
#include "runtime/comm/reduce.hpp"
#include "runtime/comm/row_bytes.hpp"

namespace mgplan::runtime {
namespace {

using model::CollectiveKind;
using model::Pending;
using model::Tensor;

constexpr std::int64_t kNumbers = 1 << 15;

class AlreadyDone final : public Pending {
public:
    void wait() override {}
};

std::byte* host_memory(const Tensor& tensor) {
    return tensor.elements() == 0 ? nullptr : static_cast<std::byte*>(tensor.data());
}

/// Returns the offset of the stand-in numbers of this type, and their size, in bytes.
std::pair<std::int64_t, std::int64_t> block_of(Dtype dtype) {
    switch (dtype) {
        case Dtype::fp64:
            return {0, 8 * kNumbers};
        case Dtype::fp32:
            return {8 * kNumbers, 4 * kNumbers};
        case Dtype::bf16:
            return {12 * kNumbers, 2 * kNumbers};
        default:
            return {14 * kNumbers, 2 * kNumbers};
    }
}

class LoneCommunicator final : public model::Communicator {
public:
    LoneCommunicator(const std::string& group, int size, int rank, const std::byte* numbers,
                     std::shared_ptr<model::CollectiveCounter> traffic)
        : Communicator(group, size, rank), numbers_(numbers), traffic_(std::move(traffic)) {}

    void abort(const std::string& reason) noexcept override {
        if (aborted_.load()) return;
        try {
            reason_ = reason;
        } catch (...) {  // no memory for the reason
        }
        aborted_ = true;
    }

private:
    std::unique_ptr<Pending> done(CollectiveKind kind, std::int64_t payload_bytes) {
        if (size() > 1) traffic_->add(group(), kind, payload_bytes);
        return std::make_unique<AlreadyDone>();
    }
    void check(CollectiveKind kind) const {
        if (aborted_) throw model::CommunicationError(fmt::format("{} in group {}: {}", to_string(kind), group(), reason_));
    }

    static void copy(const Tensor& of, std::byte* to, const std::byte* from, std::int64_t bytes) {
        if (bytes == 0 || to == from) return;
        if (auto* const operations = of.device().memory_operations()) {
            operations->copy(to, from, bytes);
        } else {
            std::memmove(to, from, static_cast<std::size_t>(bytes));
        }
    }
    /// Fills `to` with repeated copies of `from`.
    static void repeat(const Tensor& to, const std::byte* from, std::int64_t from_bytes) {
        std::byte* const first = host_memory(to);
        std::int64_t filled = std::min(from_bytes, to.bytes());
        copy(to, first, from, filled);
        while (filled < to.bytes()) {
            const std::int64_t more = std::min(filled, to.bytes() - filled);
            copy(to, first + filled, first, more);
            filled += more;
        }
    }
    void stand_in(const Tensor& to) const {
        const auto [begin, bytes] = block_of(to.dtype());
        repeat(to, numbers_ + begin, bytes);
    }
    static bool lies_in(const Tensor& part, const Tensor& whole) {
        const std::less_equal<const std::byte*> up_to;
        return part.elements() > 0 && up_to(host_memory(whole), host_memory(part)) &&
               up_to(host_memory(part) + part.bytes(), host_memory(whole) + whole.bytes());
    }

    std::unique_ptr<Pending> do_all_reduce(const Tensor& tensor, model::Reduction /*reduction*/) override {
        check(CollectiveKind::all_reduce);
        return done(CollectiveKind::all_reduce, tensor.bytes());
    }
    std::unique_ptr<Pending> do_all_gather(const Tensor& part, const Tensor& whole) override {
        check(CollectiveKind::all_gather);
        if (!lies_in(part, whole)) repeat(whole, host_memory(part), part.bytes());
        return done(CollectiveKind::all_gather, whole.bytes());
    }
    std::unique_ptr<Pending> do_reduce_scatter(const Tensor& whole, const Tensor& part, model::Reduction /*reduction*/) override {
        check(CollectiveKind::reduce_scatter);
        copy(part, host_memory(part), host_memory(whole) + rank() * part.bytes(), part.bytes());
        return done(CollectiveKind::reduce_scatter, whole.bytes());
    }
    std::unique_ptr<Pending> do_all_gather_rows(const Tensor& part, const Tensor& whole, std::span<const std::int64_t> /*rows*/) override {
        check(CollectiveKind::all_gather);
        if (part.elements() == 0) {
            stand_in(whole);
        } else {
            repeat(whole, host_memory(part), part.bytes());
        }
        return done(CollectiveKind::all_gather, whole.bytes());
    }
    std::unique_ptr<Pending> do_reduce_scatter_rows(const Tensor& whole, const Tensor& part, std::span<const std::int64_t> rows,
                                                    model::Reduction /*reduction*/) override {
        check(CollectiveKind::reduce_scatter);
        std::int64_t before = 0;
        for (int member = 0; member < rank(); ++member) before += rows[static_cast<std::size_t>(member)];
        copy(part, host_memory(part), host_memory(whole) + before * row_bytes(whole), part.bytes());
        return done(CollectiveKind::reduce_scatter, whole.bytes());
    }
    std::unique_ptr<Pending> do_all_to_all(const Tensor& from, const Tensor& to, std::span<const std::int64_t> send_rows,
                                           std::span<const std::int64_t> /*receive_rows*/) override {
        check(CollectiveKind::all_to_all);
        std::int64_t sent = 0;
        for (const auto rows : send_rows) sent += rows;
        sent *= row_bytes(from);
        if (sent == 0) {
            stand_in(to);
        } else {
            repeat(to, host_memory(from), sent);
        }
        return done(CollectiveKind::all_to_all, sent);
    }
    std::unique_ptr<Pending> do_broadcast(const Tensor& tensor, int root) override {
        check(CollectiveKind::broadcast);
        if (root != rank()) stand_in(tensor);
        return done(CollectiveKind::broadcast, tensor.bytes());
    }
    std::unique_ptr<Pending> do_send(const Tensor& tensor, int /*peer*/) override {
        check(CollectiveKind::send);
        return done(CollectiveKind::send, tensor.bytes());
    }
    std::unique_ptr<Pending> do_receive(const Tensor& tensor, int /*peer*/) override {
        check(CollectiveKind::receive);
        stand_in(tensor);
        return done(CollectiveKind::receive, tensor.bytes());
    }
    void do_barrier() override {
        check(CollectiveKind::barrier);
        static_cast<void>(done(CollectiveKind::barrier, 0));
    }

    const std::byte* numbers_;
    std::shared_ptr<model::CollectiveCounter> traffic_;
    std::atomic<bool> aborted_ = false;
    std::string reason_;
};

}  // namespace

std::vector<std::byte> stand_in_numbers() {
    std::mt19937_64 random(1);
    std::vector<double> wide(kNumbers);
    for (double& each : wide) each = std::uniform_real_distribution<double>(-1, 1)(random);
    const std::vector<float> narrow(wide.begin(), wide.end());
    std::vector<std::uint16_t> bf16(kNumbers);
    narrow_to_bf16(narrow.data(), bf16.data(), kNumbers);
    std::vector<std::byte> bytes(16 * kNumbers);
    std::memcpy(bytes.data() + block_of(Dtype::fp64).first, wide.data(), 8 * kNumbers);
    std::memcpy(bytes.data() + block_of(Dtype::fp32).first, narrow.data(), 4 * kNumbers);
    std::memcpy(bytes.data() + block_of(Dtype::bf16).first, bf16.data(), 2 * kNumbers);
    return bytes;
}

LoneWorld::LoneWorld(int rank, int size, const std::byte* numbers) : rank_(rank), size_(size), numbers_(numbers) {
    MGPLAN_ASSERT(size >= 1 && rank >= 0 && rank < size, "the rank is inside the world");
}

model::World LoneWorld::view() const {
    return {rank_, size_,
            [rank = rank_, size = size_, numbers = numbers_, traffic = traffic_](const std::string& group,
                                                                                 std::span<const std::int32_t> ranks) {
                return std::make_unique<LoneCommunicator>(group, static_cast<int>(ranks.size()), model::place_in_group(ranks, rank, size),
                                                          numbers, traffic);
            }};
}

}  // namespace mgplan::runtime
