#pragma once
// Writing files so that what is said to be written is on the disk.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace mgplan::runtime {

/// A file that is written anew. Everything throws RunError naming the file and the system's reason.
class DurableFile {
public:
    /// An existing one is emptied first. `size`: bytes that will come; where the file system can, they are set aside at once, so
    /// that a full disk is known before anything is written.
    DurableFile(std::string path, std::int64_t size);
    /// Without finish(): the file may hold anything.
    ~DurableFile();
    DurableFile(const DurableFile&) = delete;
    DurableFile& operator=(const DurableFile&) = delete;

    void write(std::int64_t at, std::span<const std::byte> bytes);
    /// Returns once all of it is on the disk.
    void finish();

private:
    [[noreturn]] void fail(std::string_view doing) const;

    std::string path_;
    int descriptor_ = -1;
};

/// Writes a small file whole: under a name of its own beside it, to the disk, and then renamed into place together with the folder's
/// entry. At any moment `path` holds what it held or all of `text`.
void replace_file(const std::string& path, std::string_view text);

/// Makes a folder and those above it; nothing where it exists. Throws RunError.
void make_folder(const std::string& path);
/// Returns once the names in the folder are on the disk. Throws RunError.
void sync_folder(const std::string& path);

}  // namespace mgplan::runtime
