-- Holdfast's defaults for jobs, for a site's own job_submit.lua. See docs/slurm-plugins.md.
--
-- Nothing in here can refuse a job or raise an error: what goes wrong is logged, and the job is submitted as it came.
-- Plain Lua 5.1 to 5.4; no global is set.

local M = {}

M.word = "holdfast" -- the word in a job's comment by which it opts in

local function words(text)
	local found = {}
	for word in string.gmatch(text or "", "[^%s,]+") do
		found[word] = true
	end
	return found
end

-- Whether the request is for a listed partition. It names none where the default one is meant.
local function in_partition(job, part_list, listed)
	local asked = job.partition
	if asked and asked ~= "" then
		for name in pairs(words(asked)) do
			if listed[name] then
				return true
			end
		end
		return false
	end
	for name, part in pairs(part_list or {}) do
		if listed[name] and part.flag_default == 1 then
			return true
		end
	end
	return false
end

-- sbatch --holdfast, or its alias: the form of the plug-in's options in flight to the node.
local function asked_by_option(job)
	local environment = job.spank_job_env
	if type(environment) ~= "table" then
		return false
	end
	for _, entry in pairs(environment) do
		local option, value = string.match(entry, "^_SLURM_SPANK_OPTION_holdfast_([%w_]+)=(.*)$")
		if (option == "holdfast" or option == "auto_resume") and value ~= "off" and value ~= "0" then
			return true
		end
	end
	return false
end

local most_bytes = 1048576 -- names of more nodes than Slurm has
local quiet_s = 3600 -- after a file that took seconds to open none is opened for so long; after one that could not be read, for a minute
local quiet_until = 0

-- The text of a plain file of modest size; nil and why of everything else, nil alone where there is none. slurmctld waits for us, so nothing in here may wait for anybody:
-- "r" waits at a FIFO for its writer, "r+" never does (Linux), and then a FIFO, a socket or a terminal cannot seek, and a device has no end.
-- "r+" needs the right to write: the file is slurmctld's user's as well (docs/slurm-plugins.md).
local function plain_text(path)
	local file, why, number = io.open(path, "r+")
	if not file then
		return nil, number ~= 2 and why or nil
	end
	local size = file:seek("end")
	local text = nil
	if size and size > 0 and size <= most_bytes and file:seek("set", 0) then
		text = file:read(size)
	end
	file:close()
	return text, path .. " is no plain file of 1 MiB at most"
end

-- Names in the file that the controller writes (history.lemon_file); nil when none has kept it for a while.
local function lemons_in(slurm, path)
	local began = os.time()
	if began < quiet_until and quiet_until - began <= quiet_s then
		return nil
	end
	local text, why = plain_text(path)
	local took = os.time() - began
	if why and not text or took > 1 then
		quiet_until = os.time() + (took > 1 and quiet_s or 60)
		slurm.log_error("holdfast: no lemons are avoided for now: %s", took > 1 and (path .. " took " .. took .. " s") or tostring(why))
	end
	if not text then
		return nil
	end
	local limit = tonumber(string.match(text, "^# until (%d+)\n"))
	if not limit or os.time() > limit then
		return nil
	end
	local names = {}
	for name in string.gmatch(text, "\n([%w][%w._-]*)") do
		names[#names + 1] = name
	end
	return names
end

-- A job of many nodes is kept off the lemons: one of them would cost all the others. Who asks for nodes by name gets them.
local function avoid_lemons(slurm, job, options)
	local least = options.lemons_from or 16
	local nodes = job.min_nodes
	if type(nodes) ~= "number" or nodes >= (slurm.NO_VAL or 4294967294) or nodes < least then
		return
	end
	if job.req_nodes and job.req_nodes ~= "" then
		return
	end
	local names = lemons_in(slurm, options.lemons)
	if names and #names > 0 then
		local own = (job.exc_nodes and job.exc_nodes ~= "") and (job.exc_nodes .. ",") or ""
		job.exc_nodes = own .. table.concat(names, ",")
	end
end

local function apply(slurm, job, part_list, options)
	if options.lemons then
		avoid_lemons(slurm, job, options)
	end
	local said = words(job.comment)[M.word] or false
	local asked = asked_by_option(job)
	local listed = {}
	for _, name in ipairs(options.partitions or {}) do
		listed[name] = true
	end
	if not (said or asked or in_partition(job, part_list, listed)) then
		return
	end
	if asked and not said then
		local comment = job.comment
		job.comment = (comment and comment ~= "") and (comment .. "," .. M.word) or M.word
	end
	-- The user's --requeue and --no-requeue stay; only what was left open gets a default.
	if job.script and job.requeue == slurm.NO_VAL16 then
		job.requeue = 1
	end
end

-- Call from slurm_job_submit. options.partitions: names of partitions whose batch jobs are to be requeued by default.
-- options.lemons: the file of history.lemon_file; jobs of options.lemons_from nodes (16) and more are kept off the nodes in it.
-- Returns true when all went well; the caller need not check.
function M.job_submit(slurm, job, part_list, options)
	local well, why = pcall(apply, slurm, job, part_list, options or {})
	if not well then
		pcall(function()
			slurm.log_error("holdfast: no defaults for this job: %s", tostring(why))
		end)
	end
	return well
end

return M
