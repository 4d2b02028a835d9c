#pragma once
// The device that has shapes and no values: it counts the memory and ops of a rank without its hardware.

#include <string_view>
#include <vector>

#include "model/device/device.hpp"

namespace mgplan::model {

/// One allocation and its life. Times count takes and returns from 0; returned is -1 while it lives.
struct AllocationRecord {
    std::string_view name;  ///< a literal
    MemoryCategory category;
    std::int64_t bytes;
    std::int64_t taken;
    std::int64_t returned = -1;
};

/// One Range of the code that ran. Times are the allocator's, as in AllocationRecord: it began before take or return number
/// `begin` and ended before number `end`.
struct RangeRecord {
    std::string_view name;
    std::int64_t number;
    std::int64_t begin;
    std::int64_t end = -1;
    int depth = 0;  ///< of nesting
};

/// Hands out addresses without memory (never to be dereferenced) and counts bytes.
class MetaAllocator final : public Allocator {
public:
    explicit MetaAllocator(bool keep_records) : keep_records_(keep_records) {}

    [[nodiscard]] std::byte* take(std::int64_t bytes, MemoryCategory category, std::string_view name) override;
    void give_back(std::byte* memory, std::int64_t bytes, MemoryCategory category) noexcept override;

    [[nodiscard]] const MemoryUse& use() const { return use_; }
    /// Forgets maxima: from now on they are those of what is live.
    void restart_high_water();
    /// In order of taking; empty unless records are kept.
    [[nodiscard]] const std::vector<AllocationRecord>& records() const { return records_; }
    /// Takes and returns so far.
    [[nodiscard]] std::int64_t clock() const { return clock_; }

private:
    bool keep_records_;
    MemoryUse use_;
    std::int64_t clock_ = 0;
    std::int64_t live_ = 0;
    std::vector<AllocationRecord> records_;
};

struct MetaDeviceOptions {
    bool keep_allocations = false;  ///< every allocation with name and lifetime, and every range; not sums alone
    bool keep_ops = true;
    KernelTraits stands_for{};  ///< kernels whose scratch is counted
};

class MetaDevice final : public Device, private OpListener {
public:
    explicit MetaDevice(const MetaDeviceOptions& options = {});

    [[nodiscard]] const MemoryUse& memory() const { return meta_allocator_.use(); }
    [[nodiscard]] const std::vector<AllocationRecord>& allocations() const { return meta_allocator_.records(); }
    /// Number of takes and returns so far: the clock by which allocations and ranges are recorded.
    [[nodiscard]] std::int64_t clock() const { return meta_allocator_.clock(); }
    [[nodiscard]] const std::vector<RangeRecord>& ranges() const { return ranges_; }
    void restart_high_water() { meta_allocator_.restart_high_water(); }
    /// The ops in order; kept unless switched off or another listener was set.
    [[nodiscard]] const std::vector<OpRecord>& ops() const { return ops_; }
    void forget_ops() { ops_.clear(); }

private:
    explicit MetaDevice(const MetaDeviceOptions& options, std::unique_ptr<MetaAllocator> allocator);
    void on_op(const OpRecord& record) override {
        if (keep_ops_) ops_.push_back(record);
    }
    void on_range_begin(std::string_view name, std::int64_t number) override;
    void on_range_end() override;
    void do_write(void* to, const void* from, std::int64_t bytes) override;
    void do_read(void* to, const void* from, std::int64_t bytes) override;
    void do_zero(void* memory, std::int64_t bytes) override;

    MetaAllocator& meta_allocator_;
    bool keep_ops_;
    bool keep_ranges_;
    std::vector<OpRecord> ops_;
    std::vector<RangeRecord> ranges_;
    std::vector<std::size_t> open_ranges_;
};

}  // namespace mgplan::model
