#pragma once
// The device that knows shapes and no values: what a rank would hold and compute, without its hardware.

#include <string>
#include <vector>

#include "model/device/device.hpp"

namespace mgplan::model {

/// One allocation and its life. Times count takes and returns from 0; returned is -1 while it lives.
struct AllocationRecord {
    std::string name;
    MemoryCategory category;
    std::int64_t bytes;
    std::int64_t taken;
    std::int64_t returned = -1;
};

/// Hands out made-up addresses (never to be followed) and keeps account.
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

private:
    bool keep_records_;
    MemoryUse use_;
    std::int64_t clock_ = 0;
    std::int64_t live_ = 0;
    std::vector<AllocationRecord> records_;
};

struct MetaDeviceOptions {
    bool keep_allocations = false;  ///< every allocation with name and lifetime, not sums alone
    bool keep_ops = true;
    KernelTraits stands_for{};  ///< whose scratch is counted
};

class MetaDevice final : public Device, private OpListener {
public:
    explicit MetaDevice(const MetaDeviceOptions& options = {});

    [[nodiscard]] const MemoryUse& memory() const { return meta_allocator_.use(); }
    [[nodiscard]] const std::vector<AllocationRecord>& allocations() const { return meta_allocator_.records(); }
    void restart_high_water() { meta_allocator_.restart_high_water(); }
    /// The ops in order; kept unless switched off or another listener was set.
    [[nodiscard]] const std::vector<OpRecord>& ops() const { return ops_; }
    void forget_ops() { ops_.clear(); }

private:
    explicit MetaDevice(const MetaDeviceOptions& options, std::unique_ptr<MetaAllocator> allocator);
    void on_op(const OpRecord& record) override { ops_.push_back(record); }
    void do_write(void* to, const void* from, std::int64_t bytes) override;
    void do_read(void* to, const void* from, std::int64_t bytes) override;
    void do_zero(void* memory, std::int64_t bytes) override;

    MetaAllocator& meta_allocator_;
    std::vector<OpRecord> ops_;
};

}  // namespace mgplan::model
