#include "sim/sqlite_disk.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <new>
#include <string_view>

#include "leaf/base/check.h"

namespace leaf::sim {
namespace {

constexpr const char* kVfsName = "leafsim";
constexpr std::string_view kFolder = "/sim/";
constexpr std::size_t kSector = 512;
constexpr std::size_t kRegion = 32'768;  // as SQLite asks for

// By number, which is part of the path.
std::map<std::uint64_t, SqliteDisk::Mount*>& Mounts() {
  static std::map<std::uint64_t, SqliteDisk::Mount*> mounts;
  return mounts;
}

}  // namespace

// A file in memory that each process maps for itself, so that a dead one can be cut off.
struct SqliteDisk::Shared {
  Shared() : file(memfd_create(kVfsName, MFD_CLOEXEC)) { LEAF_CHECK(file >= 0); }
  ~Shared() { close(file); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  const int file;
  std::size_t regions = 0;
};

// What SQLite has of an open file.
struct SqliteDisk::Handle {
  sqlite3_file base;  // first: SQLite's
  Mount* mount;       // null for a temporary file
  FilePtr file;
  bool syncs_folder;  // with its first flush, as unixSync does for a journal that it may have made
  int lock;
  std::shared_ptr<Shared> shared;
  std::vector<void*> views;
  unsigned shares;  // locks of the shared memory: one bit for each
  unsigned excludes;
  std::uint64_t failures;  // of flushes of the file, that were reported here

  bool is_alive() const { return mount == nullptr || !mount->process_.dead; }
  template <typename Is>
  bool AnyOther(Is is) const {
    return std::any_of(file->handles.begin(), file->handles.end(),
                       [&](const Handle* other) { return other != this && other->is_alive() && is(*other); });
  }
  void Unmap() {
    for (void* const view : views) munmap(view, kRegion);
    views.clear();
    shared.reset();
    shares = excludes = 0;
  }
  // What the process was writing goes on in a view that no other process sees.
  void CutOff() {
    if (!shared) return;
    for (void* const view : views) {
      const std::string content(static_cast<const char*>(view), kRegion);
      LEAF_CHECK(mmap(view, kRegion, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                      0) == view);
      std::memcpy(view, content.data(), kRegion);
    }
    shared.reset();
  }
};

// SQLite's interface. Nothing is thrown through SQLite: the end of the process becomes an error, and the code
// above finds out at its next call to the outside.
struct SqliteDisk::Vfs {
  static Handle& Of(sqlite3_file* file) { return *reinterpret_cast<Handle*>(file); }

  // Whether the process lives, and so may go on.
  static bool Lives(Handle& handle) {
    if (handle.is_alive()) return true;
    const auto cut_off = [](const File& file) {
      for (Handle* const each : file.handles) {
        if (!each->is_alive()) each->CutOff();
      }
    };
    cut_off(*handle.file);
    // The log is open here, and what is shared belongs to the database.
    for (const auto& [name, file] : handle.mount->disk_.names_) cut_off(*file);
    return false;
  }

  // Makes a system call that changes something, at which the process may die. `change` returns a result code.
  template <typename Change>
  static int Call(Mount* mount, int error, Change change) {
    if (mount == nullptr) return change();
    if (mount->process_.dead) return error;
    auto& crash = mount->disk_.crash_;
    const bool here = crash && crash->first == 0;
    const bool after = here && crash->second;
    if (here) {
      crash.reset();
    } else if (crash) {
      --crash->first;
    }
    const int result = !here || after ? change() : error;
    if (!here) return result;
    if (World* const world = World::running()) world->Kill(mount->process_);
    return error;
  }

  // Time passes for the process, unless it is ended from outside of it.
  static void Pass(Process& process, Nanos time) {
    World* const world = World::running();
    if (world == nullptr || time <= 0) return;
    try {
      world->Block(process, time);
    } catch (const ProcessKilled&) {  // as is seen by process.dead
    }
  }

  // ---- files

  static int Close(sqlite3_file* base) {
    Handle& handle = Of(base);
    (void)Lives(handle);
    handle.Unmap();
    std::erase(handle.file->handles, &handle);
    handle.~Handle();
    return SQLITE_OK;
  }

  static int Read(sqlite3_file* base, void* out, int size, sqlite3_int64 at) {
    Handle& handle = Of(base);
    if (!Lives(handle)) return SQLITE_IOERR_READ;
    const std::string& content = handle.file->content;
    const auto offset = static_cast<std::size_t>(at);
    const auto wanted = static_cast<std::size_t>(size);
    const std::size_t got = offset >= content.size() ? 0 : std::min(wanted, content.size() - offset);
    if (got > 0) std::memcpy(out, content.data() + offset, got);
    std::memset(static_cast<char*>(out) + got, 0, wanted - got);
    return got == wanted ? SQLITE_OK : SQLITE_IOERR_SHORT_READ;
  }

  static int Do(Handle& handle, int error, Change change) {
    if (!Lives(handle)) return error;
    const int result = Call(handle.mount, error, [&] {
      File& file = *handle.file;
      const bool grows = !change.truncates && change.offset + change.data.size() > file.content.size();
      if (grows && handle.mount != nullptr && handle.mount->disk_.is_full_) return SQLITE_FULL;
      Apply(file.content, change);
      file.unsynced.push_back(std::move(change));
      return SQLITE_OK;
    });
    return Lives(handle) ? result : error;
  }
  static int Write(sqlite3_file* base, const void* data, int size, sqlite3_int64 at) {
    return Do(Of(base), SQLITE_IOERR_WRITE,
              {static_cast<std::size_t>(at),
               std::string(static_cast<const char*>(data), static_cast<std::size_t>(size)), false});
  }
  static int Truncate(sqlite3_file* base, sqlite3_int64 size) {
    return Do(Of(base), SQLITE_IOERR_TRUNCATE, {static_cast<std::size_t>(size), "", true});
  }

  static int Sync(sqlite3_file* base, int /*flags*/) {
    Handle& handle = Of(base);
    if (handle.mount == nullptr) return SQLITE_OK;
    SqliteDisk& disk = handle.mount->disk_;
    if (disk.longest_flush_ > 0)
      Pass(handle.mount->process_, disk.dice_.Between(kMilli / 10, disk.longest_flush_));
    if (!Lives(handle)) return SQLITE_IOERR_FSYNC;
    const int result = Call(handle.mount, SQLITE_IOERR_FSYNC, [&] {
      File& file = *handle.file;
      if (disk.is_failing_) {
        disk.ApplySome(file);
        ++file.failures;
      } else {
        for (const Change& change : file.unsynced) Apply(file.durable, change);
        file.unsynced.clear();
      }
      // Linux tells a failure to each one that has the file open, with its next flush.
      if (std::exchange(handle.failures, file.failures) != file.failures) return SQLITE_IOERR_FSYNC;
      if (std::exchange(handle.syncs_folder, false)) disk.SyncFolder();
      return SQLITE_OK;
    });
    return Lives(handle) ? result : SQLITE_IOERR_FSYNC;
  }

  static int FileSize(sqlite3_file* base, sqlite3_int64* size) {
    Handle& handle = Of(base);
    if (!Lives(handle)) return SQLITE_IOERR_FSTAT;
    *size = static_cast<sqlite3_int64>(handle.file->content.size());
    return SQLITE_OK;
  }

  // ---- locks, of which https://www.sqlite.org/lockingv3.html tells

  static int Lock(sqlite3_file* base, int wanted) {
    Handle& handle = Of(base);
    if (!Lives(handle)) return SQLITE_IOERR_LOCK;
    if (handle.lock >= wanted) return SQLITE_OK;
    const auto others_have = [&](int level) {
      return handle.AnyOther([level](const Handle& other) { return other.lock >= level; });
    };
    if (wanted == SQLITE_LOCK_SHARED && others_have(SQLITE_LOCK_PENDING)) return SQLITE_BUSY;
    if (wanted >= SQLITE_LOCK_RESERVED && others_have(SQLITE_LOCK_RESERVED)) return SQLITE_BUSY;
    if (wanted == SQLITE_LOCK_EXCLUSIVE && others_have(SQLITE_LOCK_SHARED)) {
      handle.lock = SQLITE_LOCK_PENDING;
      return SQLITE_BUSY;
    }
    handle.lock = wanted;
    return SQLITE_OK;
  }
  static int Unlock(sqlite3_file* base, int level) {
    Handle& handle = Of(base);
    handle.lock = std::min(handle.lock, level);
    return SQLITE_OK;
  }
  static int CheckReservedLock(sqlite3_file* base, int* is_reserved) {
    Handle& handle = Of(base);
    if (!Lives(handle)) return SQLITE_IOERR_CHECKRESERVEDLOCK;
    *is_reserved = handle.lock >= SQLITE_LOCK_RESERVED ||
                   handle.AnyOther([](const Handle& other) { return other.lock >= SQLITE_LOCK_RESERVED; });
    return SQLITE_OK;
  }

  static int FileControl(sqlite3_file* /*base*/, int /*operation*/, void* /*argument*/) {
    return SQLITE_NOTFOUND;
  }
  // What the shipped library says of each file.
  static int SectorSize(sqlite3_file* /*base*/) { return 4096; }
  static int DeviceCharacteristics(sqlite3_file* /*base*/) { return SQLITE_IOCAP_POWERSAFE_OVERWRITE; }

  // ---- shared memory

  static int ShmMap(sqlite3_file* base, int region, int size, int extend, void volatile** view) {
    Handle& handle = Of(base);
    *view = nullptr;
    if (!Lives(handle)) return SQLITE_IOERR_SHMMAP;
    LEAF_CHECK(size == static_cast<int>(kRegion));
    if (!handle.shared) {
      // The first one that has it open begins with an empty one.
      if (!handle.AnyOther([](const Handle& other) { return other.shared != nullptr; }))
        handle.file->shared = std::make_shared<Shared>();
      handle.shared = handle.file->shared;
    }
    Shared& shared = *handle.shared;
    const auto index = static_cast<std::size_t>(region);
    if (index >= shared.regions) {
      if (extend == 0) return SQLITE_OK;
      shared.regions = index + 1;
      LEAF_CHECK(ftruncate(shared.file, static_cast<off_t>(shared.regions * kRegion)) == 0);
    }
    while (handle.views.size() <= index) {
      void* const mapped = mmap(nullptr, kRegion, PROT_READ | PROT_WRITE, MAP_SHARED, shared.file,
                                static_cast<off_t>(handle.views.size() * kRegion));
      LEAF_CHECK(mapped != MAP_FAILED);
      handle.views.push_back(mapped);
    }
    *view = handle.views[index];
    return SQLITE_OK;
  }
  static int ShmLock(sqlite3_file* base, int first, int count, int flags) {
    Handle& handle = Of(base);
    if (!Lives(handle)) return SQLITE_IOERR_SHMLOCK;
    const unsigned mask = ((1U << count) - 1) << first;
    if ((flags & SQLITE_SHM_UNLOCK) != 0) {
      handle.shares &= ~mask;
      handle.excludes &= ~mask;
      return SQLITE_OK;
    }
    const bool exclusive = (flags & SQLITE_SHM_EXCLUSIVE) != 0;
    if (handle.AnyOther([&](const Handle& other) {
          return ((other.excludes | (exclusive ? other.shares : 0)) & mask) != 0;
        }))
      return SQLITE_BUSY;
    (exclusive ? handle.excludes : handle.shares) |= mask;
    return SQLITE_OK;
  }
  static void ShmBarrier(sqlite3_file* /*base*/) {}
  static int ShmUnmap(sqlite3_file* base, int /*remove*/) {
    Of(base).Unmap();
    return SQLITE_OK;
  }

  // ---- names

  // "/sim/NUMBER/NAME"; no mount if there is none by that number.
  static std::pair<Mount*, std::string> Parse(std::string_view path) {
    if (!path.starts_with(kFolder)) return {};
    path.remove_prefix(kFolder.size());
    std::uint64_t number = 0;
    const auto parsed = std::from_chars(path.data(), path.data() + path.size(), number);
    const auto found = Mounts().find(number);
    if (parsed.ec != std::errc() || found == Mounts().end()) return {};
    return {found->second, std::string(path.substr(static_cast<std::size_t>(parsed.ptr - path.data()) + 1))};
  }

  static int Open(sqlite3_vfs* /*vfs*/, const char* path, sqlite3_file* base, int flags, int* got) {
    base->pMethods = nullptr;
    Mount* mount = nullptr;
    FilePtr file = std::make_shared<File>();
    if (path != nullptr) {
      std::string name;
      std::tie(mount, name) = Parse(path);
      if (mount == nullptr || mount->process_.dead) return SQLITE_CANTOPEN;
      SqliteDisk& disk = mount->disk_;
      if (const auto found = disk.names_.find(name); found != disk.names_.end()) {
        file = found->second;
      } else {
        if ((flags & SQLITE_OPEN_CREATE) == 0) return SQLITE_CANTOPEN;
        const int made = Call(mount, SQLITE_CANTOPEN, [&] {
          disk.SetName(name, file);
          return SQLITE_OK;
        });
        if (made != SQLITE_OK) return made;
      }
    }
    constexpr int kJournals = SQLITE_OPEN_MAIN_JOURNAL | SQLITE_OPEN_SUPER_JOURNAL | SQLITE_OPEN_WAL;
    const bool syncs_folder = (flags & SQLITE_OPEN_CREATE) != 0 && (flags & kJournals) != 0;
    auto* const handle = new (base)
        Handle{{&kMethods}, mount, file, syncs_folder, SQLITE_LOCK_NONE, nullptr, {}, 0, 0, file->failures};
    file->handles.push_back(handle);
    if (got != nullptr) *got = flags;
    return SQLITE_OK;
  }

  static int Delete(sqlite3_vfs* /*vfs*/, const char* path, int syncs_folder) {
    const auto [mount, name] = Parse(path);
    if (mount == nullptr) return SQLITE_IOERR_DELETE;
    SqliteDisk& disk = mount->disk_;
    if (!disk.names_.contains(name)) return SQLITE_IOERR_DELETE_NOENT;
    return Call(mount, SQLITE_IOERR_DELETE, [&, &its_name = name] {
      disk.SetName(its_name, nullptr);
      if (syncs_folder != 0) disk.SyncFolder();
      return SQLITE_OK;
    });
  }
  static int Access(sqlite3_vfs* /*vfs*/, const char* path, int /*flags*/, int* found) {
    const auto [mount, name] = Parse(path);
    *found = 0;
    if (mount == nullptr) return SQLITE_OK;
    // An empty file counts as none, as in SQLite's own VFS.
    const auto named = mount->disk_.names_.find(name);
    *found = named != mount->disk_.names_.end() && !named->second->content.empty();
    return SQLITE_OK;
  }
  static int FullPathname(sqlite3_vfs* /*vfs*/, const char* path, int size, char* out) {
    if (std::strlen(path) >= static_cast<std::size_t>(size)) return SQLITE_CANTOPEN;
    std::strcpy(out, path);
    return SQLITE_OK;
  }

  // ---- the rest of what a system gives

  static int Randomness(sqlite3_vfs* /*vfs*/, int size, char* out) {
    std::memset(out, 42, static_cast<std::size_t>(size));
    return size;
  }
  static int Sleep(sqlite3_vfs* /*vfs*/, int micros) {
    if (World* const world = World::running(); world != nullptr && world->current() != nullptr) {
      if (Process* const process = world->current()->process) Pass(*process, micros * kMicro);
    }
    return micros;
  }
  static int CurrentTime(sqlite3_vfs* /*vfs*/, double* julian_day) {
    *julian_day = 2'460'000.5;
    return SQLITE_OK;
  }
  static int GetLastError(sqlite3_vfs* /*vfs*/, int /*size*/, char* /*out*/) { return 0; }

  static const sqlite3_io_methods kMethods;
  static void Register();
};

const sqlite3_io_methods SqliteDisk::Vfs::kMethods = {
    2,
    Close,
    Read,
    Write,
    Truncate,
    Sync,
    FileSize,
    Lock,
    Unlock,
    CheckReservedLock,
    FileControl,
    SectorSize,
    DeviceCharacteristics,
    ShmMap,
    ShmLock,
    ShmBarrier,
    ShmUnmap,
    nullptr,
    nullptr,
};

void SqliteDisk::Vfs::Register() {
  static sqlite3_vfs vfs = [] {
    sqlite3_vfs made{};
    made.iVersion = 1;
    made.szOsFile = sizeof(Handle);
    made.mxPathname = 100;
    made.zName = kVfsName;
    made.xOpen = Open;
    made.xDelete = Delete;
    made.xAccess = Access;
    made.xFullPathname = FullPathname;
    made.xRandomness = Randomness;
    made.xSleep = Sleep;
    made.xCurrentTime = CurrentTime;
    made.xGetLastError = GetLastError;
    return made;
  }();
  LEAF_CHECK(sqlite3_vfs_register(&vfs, 0) == SQLITE_OK);
}

SqliteDisk::Mount::Mount(SqliteDisk& disk, Process& process) : disk_(disk), process_(process) {
  static std::uint64_t last = 0;
  Vfs::Register();
  Mounts()[++last] = this;
  path_ = fmt::format("file:{}{}/segment.db?vfs={}", kFolder, last, kVfsName);
}

SqliteDisk::Mount::~Mount() {
  std::erase_if(Mounts(), [this](const auto& mounted) { return mounted.second == this; });
}

void SqliteDisk::Apply(std::string& content, const Change& change) {
  if (change.truncates) {
    content.resize(change.offset);
    return;
  }
  if (change.offset + change.data.size() > content.size()) content.resize(change.offset + change.data.size());
  content.replace(change.offset, change.data.size(), change.data);
}

void SqliteDisk::ApplySome(File& file) {
  const double share = dice_.Chance(0.3) ? 0 : dice_.Chance(0.3) ? 0.9 : dice_.Real();
  for (const Change& change : file.unsynced) {
    if (!dice_.Chance(share)) continue;
    if (change.truncates || change.data.size() <= kSector || dice_.Chance(0.7)) {
      Apply(file.durable, change);
      continue;
    }
    for (std::size_t begin = 0; begin < change.data.size(); begin += kSector) {
      if (dice_.Chance(0.5))
        Apply(file.durable, {change.offset + begin, change.data.substr(begin, kSector), false});
    }
  }
  file.unsynced.clear();
}

void SqliteDisk::SetName(const std::string& name, const FilePtr& file) {
  if (file) {
    names_[name] = file;
  } else {
    names_.erase(name);
  }
  unsynced_names_.push_back({name, file});
}

void SqliteDisk::SyncFolder() {
  durable_names_ = names_;
  unsynced_names_.clear();
}

void SqliteDisk::Mend() {
  is_full_ = is_failing_ = false;
  crash_.reset();
}

void SqliteDisk::LosePower() {
  std::size_t kept = dice_.Below(unsynced_names_.size() + 1);
  for (const NameChange& change : unsynced_names_) {
    if (kept-- == 0) break;
    if (change.file) {
      durable_names_[change.name] = change.file;
    } else {
      durable_names_.erase(change.name);
    }
  }
  names_ = durable_names_;
  unsynced_names_.clear();
  for (auto& [name, file] : names_) {
    ApplySome(*file);
    // Connections of the dead keep what they had open.
    const auto left = std::make_shared<File>();
    left->content = left->durable = file->durable;
    file = left;
  }
  durable_names_ = names_;
}

void SqliteDisk::CopyTo(SqliteDisk& other) const {
  for (const auto& [name, file] : names_) {
    const auto copy = std::make_shared<File>();
    copy->content = copy->durable = file->content;
    other.names_[name] = copy;
  }
  other.durable_names_ = other.names_;
}

}  // namespace leaf::sim
