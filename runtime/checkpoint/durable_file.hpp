#pragma once
// Writes files so that finished ones are on the disk.

#include <array>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace mgplan::runtime {

/// The content of a file or folder, which messages name together with a way out that fits it.
enum class FilePurpose : std::uint8_t { checkpoint, weights };
/// "checkpoint", "weights".
[[nodiscard]] std::string_view to_string(FilePurpose purpose);

/// A new file. Every function throws RunError naming the file and the system's reason.
class DurableFile {
public:
    /// An existing one is emptied first. `size`: bytes that will come; where the file system can, they are set aside at once, so
    /// that a full disk is known before anything is written.
    DurableFile(std::string path, std::int64_t size, FilePurpose purpose = FilePurpose::checkpoint);
    /// Without finish(): the file may hold anything.
    ~DurableFile();
    DurableFile(const DurableFile&) = delete;
    DurableFile& operator=(const DurableFile&) = delete;

    /// Whole blocks from aligned memory bypass the page cache where the file system can (O_DIRECT): the processor copies nothing, and
    /// the disk works from the first byte on. All else goes through the page cache.
    void write(std::int64_t at, std::span<const std::byte> bytes);
    /// Returns once all of it is on the disk.
    void finish();

private:
    [[noreturn]] void fail(std::string_view doing) const;
    void set_direct(bool direct);

    std::string path_;
    FilePurpose purpose_;
    int descriptor_ = -1;
    bool direct_ = false;        ///< true while the descriptor has O_DIRECT
    bool may_be_direct_ = true;  ///< until the file system says that it cannot
};

/// Writes bytes that come in pieces of any size, one after another in whole blocks, 16 MiB at a time: while a thread writes one part to
/// the disk, the next is filled.
class BlockWriter {
public:
    /// The unit of O_DIRECT on usual disks and machines; where a larger one is wanted, writes go through the page cache.
    static constexpr std::int64_t kBlock = 4096;

    /// `begin`: where the first byte goes, a multiple of kBlock. The file outlives this.
    BlockWriter(DurableFile& file, std::int64_t begin);
    /// Throws RunError for what was appended before, too.
    void append(std::span<const std::byte> bytes);
    /// Writes the remaining bytes. No append() may follow.
    void finish();

private:
    struct Free {
        void operator()(std::byte* memory) const;
    };

    DurableFile& file_;
    std::int64_t at_;
    std::size_t filled_ = 0;
    std::array<std::unique_ptr<std::byte[], Free>, 2> buffers_;  ///< the first is being filled
    std::future<void> writing_;  ///< the write of the second; its end is waited for before buffers are freed
};

/// Writes a small file whole: under a temporary name in the same folder, to the disk, and then renamed into place together with the
/// folder's entry. At any moment `path` holds what it held or all of `text`.
void replace_file(const std::string& path, std::string_view text, FilePurpose purpose = FilePurpose::checkpoint);

/// Makes a folder and those above it; nothing where it exists. Throws RunError.
void make_folder(const std::string& path, FilePurpose purpose = FilePurpose::checkpoint);
/// Returns once the names in the folder are on the disk. Throws RunError.
void sync_folder(const std::string& path, FilePurpose purpose = FilePurpose::checkpoint);

}  // namespace mgplan::runtime
